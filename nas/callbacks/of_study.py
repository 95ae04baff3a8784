"""The trials of a study, told to callbacks: each that has ended is one run, with its curve, its metrics and its end.

It reads the database only, so it can neither slow down a search nor end it, and works for a study of any age.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from nas import report
from nas.callbacks import registry
from nas.files import write_whole
from nas.report.activity import Activity, of_all
from nas.store import Reader, Study, Trial, TrialState, UnitState

TOLD = "told.json"  # in the folder: {callback: [numbers of trials]}
ENDED = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)
INTERVAL = 5.0  # seconds between two looks at a study that runs


def told(
    store: Reader, study: Study, names: Sequence[str], folder: Path, *, follow: bool = False
) -> Iterator[tuple[int, str]]:
    """Tell the callbacks `names` of each trial that has ended and is new -> (trial, callback) as they are told.

    What was told is kept in `folder`, so the same call goes on where the last one ended. follow: also wait for trials
    that end later, until no process works on the study. Raises UsageError for an unknown name, NasError if a library
    is missing.
    """
    known = _read(folder / TOLD)
    while True:
        runs = follow and _is_running(store, study)
        for trial in store.trials(study.id):
            for name in names:
                if trial.state in ENDED and trial.number not in known.setdefault(name, []):
                    _tell(store, study, trial, name, folder)
                    known[name].append(trial.number)
                    write_whole(folder / TOLD, json.dumps(known).encode())
                    yield trial.number, name
        if not runs:
            return
        sleep(INTERVAL)


def _read(path: Path) -> dict[str, list[int]]:
    if not path.exists():
        return {}
    found: dict[str, list[int]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def _is_running(store: Reader, study: Study) -> bool:
    return of_all(each.activity for each in report.progress(store, study)) is Activity.RUNNING


def _tell(store: Reader, study: Study, trial: Trial, name: str, folder: Path) -> None:
    """One trial as one run of the callback `name`."""
    kind = registry.registry.find(name)
    place = folder if getattr(kind, "shared", False) else folder / f"trial-{trial.number:05d}"
    place.mkdir(parents=True, exist_ok=True)
    run = registry.make(name, place, _about(study, trial))
    try:
        for step, values in sorted(_points(store, study, trial).items()):
            run.log(step, values)
    finally:
        run.close()


def _about(study: Study, trial: Trial) -> dict[str, Any]:
    """The name of the run and what does not change with its steps."""
    found: dict[str, Any] = {
        "name": f"{study.name}:{trial.number}",
        "state": trial.state.value,
        "arm": trial.arm,
        "purpose": trial.purpose,
        "operator": trial.operator,
        "parents": ", ".join(map(str, trial.parents)),
        "seed": trial.seed,
        "architecture": trial.architecture_hash,
        "yaml": trial.architecture,
    }
    return found | {f"objective/{name}": value for name, value in trial.values.items()}


def _points(store: Reader, study: Study, trial: Trial) -> dict[int, dict[str, float]]:
    """The training loss and the metrics of every rung, by step. A value that is not finite is left out."""
    points: dict[int, dict[str, float]] = {}
    for step, loss in report.curve(store, study, trial.number):
        _add(points, step, {"training/loss": loss})
    for unit in store.units(study.id, trial.number):
        if unit.state is UnitState.DONE:
            _add(points, unit.steps, store.metrics(study.id, trial.number, unit.rung))
    return points


def _add(points: dict[int, dict[str, float]], step: int, values: Mapping[str, float | None]) -> None:
    finite = {name: value for name, value in values.items() if value is not None}
    if finite:
        points.setdefault(step, {}).update(finite)
