"""The time that the study database takes: `python -m benchmarks.store [--trials 100000] [--json]`.

Records trials with 25 choices, two objectives and five metrics in SQLite, each as the search does (one transaction to
add and lease, one to finish), and the same with Optuna's storage. Then it times the queries of `status`, `best`,
`pareto` and of a page that asks for changes, and the CPU time of whole commands in new processes.
"""

from __future__ import annotations

import argparse
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.support.report import report
from nas import report as reports
from nas.store import Store, Study, TrialAdded, open_store

HOLES = 25
OBJECTIVES = [{"name": "bits_per_byte", "direction": "minimize"}, {"name": "flops", "direction": "minimize"}]
TEXT = "kind: decoder\nwidth: 64\n" * 20
OF_OPTUNA = 200
READ = 100  # trials of the study that commands read in fresh processes


def record(store: Store, study: Study, number: int, generator: random.Random) -> None:
    """Record one trial, from its proposal to its end."""
    added = store.add_trial(
        study.id,
        number,
        (f"{number:064x}", TEXT),
        seed=0,
        purpose="search",
        operator="random",
        choices={f"body[{index}].width": generator.randrange(8) for index in range(HOLES)},
        known_results=number,
        steps=100,
        owner="benchmark",
        cheap_values={"flops": generator.random()},
    )
    assert isinstance(added, TrialAdded) and added.unit is not None
    metrics = {f"metric {index}": generator.random() for index in range(5)}
    objectives = {"bits_per_byte": generator.random(), "flops": generator.random()}
    store.finish(added.unit.id, "benchmark", 1, objectives, metrics, last=True, seconds=1.0, device="cpu")


def timed(action: Callable[[], object], times: int = 5) -> float:
    """The median of a few repetitions, in milliseconds."""
    laps = []
    for _ in range(times):
        began = time.perf_counter()
        action()
        laps.append((time.perf_counter() - began) * 1000)
    return statistics.median(laps)


def of_optuna(folder: Path) -> float:
    """Milliseconds per trial in Optuna's storage on SQLite, with the same number of parameters."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(storage=f"sqlite:///{folder}/optuna.db", directions=["minimize", "minimize"])
    began = time.perf_counter()
    for _ in range(OF_OPTUNA):
        trial = study.ask()
        values = [trial.suggest_int(f"x{index}", 0, 7) for index in range(HOLES)]
        study.tell(trial, [values[0], values[1]])
    return (time.perf_counter() - began) / OF_OPTUNA * 1000


def measure(trials: int, folder: Path) -> list[dict]:
    generator, laps = random.Random(0), []
    with open_store(folder / "study.db") as store:
        study = store.create_study("benchmark", {}, "space", 0, OBJECTIVES)
        for number in range(trials):
            began = time.perf_counter()
            record(store, study, number, generator)
            laps.append((time.perf_counter() - began) * 1000)
        some, mark = min(1000, trials), store.mark(study.id)
        return [
            _row("record a trial, first thousand", statistics.fmean(laps[:some]), "2 ms"),
            _row("record a trial, last thousand", statistics.fmean(laps[-some:]), "2 ms"),
            _row(f"Optuna: record a trial, {OF_OPTUNA} trials", of_optuna(folder), ""),
            _row("status", timed(lambda: reports.status(store, study)), "1000 ms"),
            _row("best", timed(lambda: reports.best(store, study)), "1000 ms"),
            _row("trials, light", timed(lambda: reports.results(store, study)), ""),
            _row("trials, whole", timed(lambda: store.trials(study.id)), ""),
            _row("changes since the last look", timed(lambda: reports.changes(store, study, mark)), "50 ms"),
            _row("pareto", timed(lambda: reports.front(store, study)), "1000 ms"),
        ]


def fresh_processes(folder: Path) -> list[dict]:
    """The CPU time, user and system, of commands that only read."""
    with open_store(folder / "small.db") as store:
        study = store.create_study("small", {}, "space", 0, OBJECTIVES)
        generator = random.Random(0)
        for number in range(READ):
            record(store, study, number, generator)
    place = ["--storage", str(folder / "small.db")]
    rows = [_row("import nas.report: CPU of a fresh process", cpu("-c", "import nas.report"), "400 ms")]
    for command in ("status", "best", "table", "report"):
        output = ["-o", str(folder / "report.html")] if command == "report" else []
        used = cpu("-m", "nas", command, "small", *place, *output)
        rows.append(_row(f"nas {command}, {READ} trials: CPU of a fresh process", used, "600 ms"))
    return rows


def cpu(*arguments: str) -> float:
    """Milliseconds of CPU of Python with these arguments, the minimum of a few runs."""
    return min(_cpu_once(arguments) for _ in range(5))


def _cpu_once(arguments: tuple[str, ...]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1000


def _row(what: str, milliseconds: float, bar: str) -> dict:
    return {"what": what, "ms": round(milliseconds, 2), "bar": bar}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trials", type=int, default=100_000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        rows = measure(arguments.trials, Path(folder)) + fresh_processes(Path(folder))
    report(f"store, SQLite, {arguments.trials} trials", rows, as_json=arguments.json)


if __name__ == "__main__":
    main()
