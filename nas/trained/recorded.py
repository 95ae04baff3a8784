"""How an architecture was trained: its task, data, recipe, length and seed, as a study or an exported file recorded it.

A file of the user's own or a name of the zoo has no record: its `task` is None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nas import architectures
from nas.errors import UsageError
from nas.exports import header
from nas.exports.header import ARCHITECTURE, TRAINING
from nas.location import trial_reference
from nas.own import blocks
from nas.work import Checkpoint
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from nas.store import Reader, Study
    from nas.tasks.contract import Task

WEIGHTS = ".safetensors"


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """What is known of an architecture that people named. task: {name: options}, None if nothing is recorded.

    steps: the training that the search gave it. horizon: the steps at which its learning rate has come down. rungs: the
    steps at which it was evaluated. metrics: what it reached. checkpoint: of the trial. file: of exported weights.
    header: what an exported file says of itself, or what it would say of the trial's descent.
    """

    name: str
    architecture: Architecture
    task: Mapping[str, Any] | None = None
    task_source: str | None = None
    blocks: Mapping[str, str] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    steps: int | None = None
    horizon: int | None = None
    seed: int = 0
    rungs: tuple[int, ...] = ()
    of_search: bool = False  # whether it was evaluated as the trials of a search are, on a part of the held-out data
    device: str = "cpu"
    threads: int = 1
    metrics: Mapping[str, float] = field(default_factory=dict)
    vocabulary: Mapping[str, Any] | None = None
    data_sha256: str = ""
    checkpoint: Checkpoint | None = None
    file: Path | None = None
    header: Mapping[str, Any] = field(default_factory=dict)


def find(reference: str, storage: str | None = None, task: Callable[[], Task] | None = None) -> Recorded:
    """The record of `reference`: a file, an exported folder, a name of the zoo, or STUDY:TRIAL.

    task: prepares the task for which the architecture is completed, if it has no record. Raises UsageError, StoreError
    or SpaceError if there is no such architecture.
    """
    path = Path(reference)
    if path.is_dir() and (path / ARCHITECTURE).is_file():
        own_blocks(path / ARCHITECTURE)
        return _of_file(path / ARCHITECTURE, Architecture.load(path / ARCHITECTURE), reference)
    trial = trial_reference(reference)
    if trial is not None and not architectures.in_zoo(reference):
        return of_trial(*trial, storage=storage)
    own_blocks(path)
    if task is not None and (architectures.in_zoo(reference) or _has_no_record(path)):
        from nas.config import checks  # it imports torch

        architecture = checks.find(reference, task(), storage=storage)
    else:
        architecture = architectures.find(reference, storage)
    return _of_file(path, architecture, reference) if path.is_file() else Recorded(
        name=reference, architecture=architecture
    )  # fmt: skip


def own_blocks(path: Path) -> None:
    """Run the user's own blocks that the header of an exported file holds. Raises BlockProblem if that fails."""
    found = header.read(path).get("blocks") if path.is_file() else None
    if isinstance(found, Mapping):
        blocks.load({str(name): str(text) for name, text in found.items()})


def _has_no_record(path: Path) -> bool:
    return path.is_file() and "task" not in header.read(path)


def of_trial(study: str, number: int, storage: str | None = None) -> Recorded:
    """Trial `number` of `study`. Raises UsageError or StoreError if there is none."""
    from nas.location import open_existing

    store, found = open_existing(study, storage)
    with store:
        return _read_trial(store, found, number)


def _read_trial(store: Reader, study: Study, number: int) -> Recorded:
    from nas.config.parts import parts
    from nas.config.schema import SearchConfig
    from nas.exports.origin import horizon, lineage
    from nas.store import UnitKind, UnitState
    from nas.training.recipe import replaced

    config, trial = SearchConfig.stored(study.config), store.trial(study.id, number)
    blocks.load(config.blocks)
    named = {"trial": number} if trial.final is None else {"final": trial.final}
    units = [each for each in store.units(study.id, number) if each.kind is UnitKind.TRAIN]
    done = [each for each in units if each.state is UnitState.DONE]
    kept = [each for each in done if each.checkpoint_uri]
    steps = done[-1].steps if done else (units[-1].steps if units else None)
    return Recorded(
        name=f"{study.name}:{trial.address}",
        architecture=Architecture.parse(trial.architecture, f"{study.name}:{trial.address}"),
        task={config.task.name: config.task.options},
        task_source=config.task_source,
        blocks=config.blocks,
        recipe=replaced(config.recipe, trial.recipe or {}),
        steps=steps,
        horizon=None if steps is None else horizon(config, trial, steps),
        seed=trial.seed,
        rungs=tuple(each.steps for each in done),
        of_search=trial.final is None,
        device=config.device,
        threads=parts(config).threads,
        metrics=_finite(store.metrics(study.id, number, done[-1].rung)) if done else {},
        vocabulary=config.vocabulary,
        data_sha256=study.data_hash or "",
        checkpoint=Checkpoint(kept[-1].checkpoint_uri or "", kept[-1].checkpoint_sha256 or "") if kept else None,
        header={"study": study.name, **named, "lineage": lineage(store, study, trial)},
    )


def _finite(metrics: Mapping[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if value is not None}


def _of_file(path: Path, architecture: Architecture, reference: str) -> Recorded:
    found = header.read(path)
    weights = path.with_suffix(WEIGHTS)
    inside = [path.parent / f"model{WEIGHTS}", path.parent / TRAINING] if path.name == ARCHITECTURE else []
    file = next((each for each in (weights, *inside) if each.is_file()), None)
    if not found or "task" not in found:
        return Recorded(name=reference, architecture=architecture, file=file, header=found)
    finals = found.get("finals") or {}
    run = {**found.get("search", {}), **finals}
    recipe = finals.get("recipe", found.get("recipe"))
    if finals.get("recipe"):
        from nas.training.recipe import replaced

        recipe = replaced(_options(found.get("recipe")), finals["recipe"])
    steps = run.get("steps") or None
    return Recorded(
        name=reference,
        architecture=architecture,
        task=_spec(found["task"], path),
        task_source=found.get("task_source"),
        blocks=found.get("blocks") or {},
        recipe=_options(recipe),
        steps=steps,
        horizon=steps if finals else run.get("horizon", steps),
        seed=run.get("seed", 0),
        rungs=(steps,) if steps else (),
        metrics=run.get("metrics") or {},
        vocabulary=found.get("vocabulary"),
        data_sha256=found.get("data_sha256") or "",
        file=file,
        header=found,
    )


def _options(recipe: Any) -> dict[str, Any]:
    return dict(recipe) if isinstance(recipe, Mapping) else {}


def _spec(task: Any, path: Path) -> dict[str, Any]:
    """{name: options} of a task as the header writes it. Raises UsageError for anything else."""
    if isinstance(task, str):
        return {task: {}}
    if isinstance(task, Mapping) and len(task) == 1:
        name, options = next(iter(task.items()))
        if options is None or isinstance(options, Mapping):
            return {str(name): dict(options or {})}
    raise UsageError(f"{path}: the header's `task` must be a name or {{name: options}}, but got {task!r}.")
