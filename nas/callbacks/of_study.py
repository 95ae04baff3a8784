"""Reports the trials of a study to callbacks: each ended trial is one run, with its curve, metrics and final state.

It only reads the database, so it cannot slow down or end a search, and it works for studies of all versions.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from time import sleep
from typing import Any

from nas import report
from nas.callbacks import registry
from nas.errors import UsageError
from nas.files import write_whole
from nas.report.activity import Activity, of_all
from nas.store import Reader, Study, Trial, TrialState, UnitKind, UnitState

TOLD = "told.json"  # in the folder: {callback: [numbers of trials]}, and the two keys below
STUDY, STATES = "study of these runs", "states"  # which study it is; {callback: {trial: its state when it was told}}
ENDED = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.FAILED)
INTERVAL = 5.0  # seconds between two looks at a study that runs


def told(
    store: Reader,
    study: Study,
    names: Sequence[str],
    folder: Path,
    *,
    follow: bool = False,
    trials: Collection[int] | None = None,
) -> Iterator[tuple[int, str]]:
    """Report each new ended trial to the callbacks `names` -> (trial, callback) for each report.

    `folder` records the reported units, so the same call continues where the last one ended. A trial that was trained
    further since then is reported again, completely. follow: also wait for trials that end later, until no process
    works on the study. trials: only these numbers. Raises UsageError for an unknown name, or if the folder belongs to
    another study, NasError if a library is missing.
    """
    for name in names:
        registry.registry.find(name)
    known = _read(folder / TOLD)
    _check_study(known, study, folder)
    while True:
        runs = follow and _is_running(store, study)
        for trial in store.trials(study.id):
            wanted = trial.state in ENDED and (trials is None or trial.number in trials)
            for name in dict.fromkeys(names):
                if wanted and _is_new(known, trial, name):
                    _tell(store, study, trial, name, folder)
                    _note(known, trial, name)
                    write_whole(folder / TOLD, json.dumps(known).encode())
                    yield trial.number, name
        if not runs:
            return
        sleep(INTERVAL)


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise UsageError(f"{path} is damaged ({error}). Name another folder, or remove this one.") from None
    if not isinstance(found, dict):
        raise UsageError(f"{path} is no list of the trials that were written. Name another folder.")
    return found


def _check_study(known: dict[str, Any], study: Study, folder: Path) -> None:
    """Raise UsageError if `folder` has the runs of another study. Older releases did not name it."""
    mine = f"{study.name}, created {study.created_at:%Y-%m-%d %H:%M:%S}"
    if (other := known.setdefault(STUDY, mine)) != mine:
        raise UsageError(f"{folder} has the runs of another study ({other}), not of {mine}. Name another folder.")


def _is_new(known: Mapping[str, Any], trial: Trial, name: str) -> bool:
    """Whether the callback has not received the trial, or only a part of it."""
    state = known.get(STATES, {}).get(name, {}).get(str(trial.number))
    return trial.number not in known.get(name, []) or state not in (None, _state(trial))


def _note(known: dict[str, Any], trial: Trial, name: str) -> None:
    numbers = known.setdefault(name, [])
    if trial.number not in numbers:
        numbers.append(trial.number)
    known.setdefault(STATES, {}).setdefault(name, {})[str(trial.number)] = _state(trial)


def _state(trial: Trial) -> str:
    return f"{trial.state.value} {trial.rung}"


def _is_running(store: Reader, study: Study) -> bool:
    return of_all(each.activity for each in report.progress(store, study)) is Activity.RUNNING


def _tell(store: Reader, study: Study, trial: Trial, name: str, folder: Path) -> None:
    """Report one trial as one run of the callback `name`."""
    kind = registry.registry.find(name)
    place = folder if getattr(kind, "shared", False) else folder / _name_of_folder(trial)
    place.mkdir(parents=True, exist_ok=True)
    _clear(place, kind)
    run = registry.make(name, place, _about(study, trial))
    try:
        for step, values in sorted(_points(store, study, trial).items()):
            run.log(step, values)
    finally:
        run.close()


def _name_of_folder(trial: Trial) -> str:
    return f"trial-{trial.number:05d}" if trial.final is None else f"final-{trial.final:05d}"


def _clear(place: Path, kind: Any) -> None:
    """Remove the files of an interrupted call, or of a call when the trial was trained for fewer steps."""
    written = place / getattr(kind, "written", "")
    if written == place:
        return
    if written.is_dir():
        shutil.rmtree(written)
    else:
        written.unlink(missing_ok=True)


def _about(study: Study, trial: Trial) -> dict[str, Any]:
    """The name of the run, and its settings and final values."""
    found: dict[str, Any] = {
        "name": f"{study.name}:{trial.address}",
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
        if unit.kind is UnitKind.TRAIN and unit.state is UnitState.DONE:
            _add(points, unit.steps, store.metrics(study.id, trial.number, unit.rung))
    return points


def _add(points: dict[int, dict[str, float]], step: int, values: Mapping[str, float | None]) -> None:
    finite = {name: value for name, value in values.items() if value is not None}
    if finite:
        points.setdefault(step, {}).update(finite)
