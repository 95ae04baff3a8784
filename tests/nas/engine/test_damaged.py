"""A search that goes on with a damaged database names the damaged row. It neither fails without a word nor hangs."""

import shutil
import sqlite3

import pytest

from nas.engine import launch
from nas.engine.loop import Interrupted
from nas.errors import DamageError
from nas.runners.inline import InlineRunner

HALVING = "{halving: {rungs: [2, 4, 8], factor: 2}}"
STRATEGY = "{nsga2: {start: 4, population: 4}}"
DAMAGE = {
    "trial, row id .*: choices cannot be read": "UPDATE trial SET choices = substr(choices, 1, 20)",
    "trial, row id .*: choices cannot be read: JSON of so": f"UPDATE trial SET choices = '{'[' * 100_000}'",
    "unit, row id 3: seconds is no number": "UPDATE unit SET seconds = 'abc' WHERE id = 3",
    "unit, row id 3: its values do not agree": "DELETE FROM objective_value WHERE unit_id = 3",
    "trial, number 2: no arm 'other'": "UPDATE trial SET arm = 'other' WHERE number = 2",
    "trial, number 2: no arm 'main' has trials of the kind 'x'": "UPDATE trial SET purpose = 'x' WHERE number = 2",
    "trial, number 3: rows before it": "UPDATE trial SET number = 102 WHERE number = 2",
    "unit, sequence 4: rows before it": "UPDATE unit SET sequence = 999 WHERE sequence = 3",
    "trial, number 2: it knew 999 results": "UPDATE trial SET known_results = 999 WHERE number = 2",
    "space_version, row study_id 1": "UPDATE space_version SET text = substr(text, 1, 60)",
    "study, row id 1": "UPDATE study SET seed = 7",
    "architecture, hash": "UPDATE architecture SET text = (SELECT text FROM architecture ORDER BY hash LIMIT 1)",
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    return tmp_path_factory.mktemp("kept") / "tried.db"


@pytest.fixture
def config(describe, table, stopped, kept):
    """`config(folder)`: a search that was stopped while its eleventh unit ran."""
    asked = {"strategy": STRATEGY, "scheduler": HALVING, "budget": "{trials: 16}"}
    if not kept.exists():
        with pytest.raises(Interrupted):
            launch.search(describe(kept.parent, **asked), quiet=True, runner=stopped(table, 10))
    return lambda folder: describe(folder, **asked)


@pytest.mark.parametrize("row", DAMAGE)
def test_the_damaged_row_is_named(config, table, kept, tmp_path, row):
    asked = config(tmp_path)
    connection = sqlite3.connect(shutil.copy(kept, tmp_path))
    connection.execute("PRAGMA ignore_check_constraints = ON")
    connection.execute(DAMAGE[row])
    connection.commit()
    connection.close()
    with pytest.raises(DamageError, match=f"is damaged: (.*; )?table {row}"):
        launch.search(asked, quiet=True, runner=InlineRunner(table))


def test_an_error_of_a_search_whose_database_is_in_order_stays_as_it_is(config, table, kept, tmp_path):
    class Broken(InlineRunner):
        def submit(self, work):
            raise ZeroDivisionError

    asked = config(tmp_path)
    shutil.copy(kept, tmp_path)
    with pytest.raises(ZeroDivisionError):
        launch.search(asked, quiet=True, runner=Broken(table))
