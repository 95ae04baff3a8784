"""Made `study-v1.db`, a study as the first version wrote it: every state, every table, two studies.

Run `python tests/nas/store/make_study_file.py NEW.db` only for the file of a new version: the old ones stay.
"""

import sys
from pathlib import Path

from sqlalchemy import insert

from nas.store import Store, open_store
from nas.store.device_models import device, latency, measurement
from nas.store.types import now

OBJECTIVES = [{"name": "bits_per_byte", "direction": "minimize"}, {"name": "accuracy", "direction": "maximize"}]
OWNER = "laptop:1:first"


def make(path: Path) -> None:
    with open_store(path) as store:
        fill_search(store)
        fill_costs(store)
        store.create_study("empty", {}, "kind: encoder", 1, OBJECTIVES)
        with store.database.engine.connect() as connection:  # one file, with nothing left in its log
            connection.exec_driver_sql("COMMIT")
            connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
            connection.exec_driver_sql("VACUUM")


def fill_search(store: Store) -> None:
    study = store.create_study("first", {"budget": {"trials": 6}}, "kind: decoder", 7, OBJECTIVES, "5eed")
    store.add_space_version(study.id, "kind: decoder\nwidth: !choice [64, 128]")
    for number in range(6):
        store.add_trial(
            study.id,
            number,
            (f"{number:064x}", f"kind: decoder\nwidth: {64 + number}\n"),
            seed=7,
            purpose="final" if number == 5 else "search",
            operator="mutate" if number else "baseline",
            parents=[0] if number else [],
            choices={"width": 64 + number},
            known_results=max(0, number - 1),
            steps=100,
            cheap_values={"parameters": 1000.0 + number},
            failure=("build error", "width must be even") if number == 4 else None,
        )
    units = {unit.number: unit for unit in store.lease(study.id, OWNER, 3)}
    for number, last in ((0, False), (1, False), (2, True)):
        unit = units[number]
        values = {"bits_per_byte": 2.5 - number, "accuracy": 0.25 * number}
        store.finish(
            unit.id,
            OWNER,
            1,
            values,
            {"tokens_per_second": 1e4},
            last=last,
            curve=[(50, 4.0), (100, 3.0)],
            checkpoint=(f"file:///checkpoints/{number}", "c0ffee"),
            seconds=1.5,
            device="cpu",
        )
    store.stop_trials(study.id)
    store.lease(study.id, OWNER, 1)  # trial 3 runs, trial 5 waits


def fill_costs(store: Store) -> None:
    times = {"milliseconds": 1.5, "low": 1.25, "high": 2.0, "created_at": now()}
    run = {"operation": "rms_norm", "problem": "{}", "implementation": "torch", "source": "0", "device_id": 1}
    phase = {"architecture_hash": f"{0:064x}", "device_id": 1, "phase": "prefill", "problem": "{}", "kind": "measured"}
    with store.database.engine.begin() as connection:
        connection.execute(insert(device).values(id=1, hash="d0", fingerprint={"name": "cpu"}))
        connection.execute(insert(measurement).values(**run, **times, configuration='{"threads":1}'))
        failed = {"configuration": '{"threads":0}', "failure": "no threads", "created_at": now()}
        connection.execute(insert(measurement).values(**run, **failed))
        connection.execute(insert(latency).values(**phase, **times))


if __name__ == "__main__":
    make(Path(sys.argv[1]))
