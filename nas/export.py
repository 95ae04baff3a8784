"""An architecture leaves a study as a file: YAML that builds, with where it comes from in its header, and its weights."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import yaml

from nas import assembly, overview
from nas.config import SearchConfig
from nas.errors import NasError
from nas.finals import Finals
from nas.store import Store, Study, Trial, UnitState
from nas.work import Checkpoint
from searchspace.architecture import Architecture
from searchspace.build import cost

PACKAGES = ("tessera-nas", "torch", "ray", "optuna", "sqlalchemy")


@dataclass(frozen=True)
class Export:
    """A file to be written: `text` is YAML with its header, `weights` the bytes of a safetensors file or None."""

    trial: int
    text: str
    weights: bytes | None


def best_number(store: Store, study: Study) -> int:
    """The winner of the finals, as a trial of the search; without finals the best trial. Raises NasError if none is."""
    config = SearchConfig(**study.config)
    finalists = Finals(config, store, study, assembly.objectives(config)).finalists()
    if finalists:
        return finalists[0].number
    best = overview.best_trials(store, study, None, 1)
    if not best:
        raise NasError(f"No trial of study {study.name!r} has finished yet, so there is none to export.")
    return best[0].number


def export(store: Store, study: Study, number: int, *, weights: bool = False) -> Export:
    """Trial `number` as a file. With `weights` those of its best final seed, else of its last rung.

    Raises NasError when its checkpoint is gone.
    """
    trial = store.trial(study.id, number)
    architecture = Architecture.parse(trial.architecture, f"{study.name}:{number}")
    trained = _trained(store, study, trial)
    header = _header(store, study, trial, trained, architecture)
    lines = yaml.safe_dump(header, sort_keys=False, allow_unicode=True, width=110).splitlines()
    text = "".join(f"# {line}\n" for line in lines) + architecture.text()
    return Export(number, text, _weights(store, study, trained) if weights else None)


def write(export: Export, path: Path) -> list[Path]:
    """Write an export to `path`, and its weights beside it with the ending .safetensors -> the files."""
    files: list[tuple[Path, bytes]] = [(path, export.text.encode())]
    if export.weights is not None:
        files.append((path.with_suffix(".safetensors"), export.weights))
    try:
        for name, content in files:
            part = name.with_name(f".{name.name}.{os.getpid()}.part")
            part.write_bytes(content)
            part.replace(name)  # whole or not at all
    except OSError as error:
        raise NasError(f"Could not write {path}: {error.strerror}.") from None
    return [name for name, _ in files]


def _trained(store: Store, study: Study, trial: Trial) -> Trial:
    """The trial whose weights and metrics stand for `trial`: the best seed of the finals if it was there, else itself."""
    finals = [each for each in store.trials(study.id, purposes=("final",)) if each.values]
    same = [each for each in finals if each.architecture_hash == trial.architecture_hash]
    objective = assembly.objectives(SearchConfig(**study.config))[0]
    return min(same, key=lambda each: objective.minimised(each.values[objective.name]), default=trial)


def _header(store: Store, study: Study, trial: Trial, trained: Trial, architecture: Architecture) -> dict[str, Any]:
    config = SearchConfig(**study.config)
    costs = cost(architecture, assembly.shape(config))
    header: dict[str, Any] = {
        "made_by": "Tessera (tessera-nas)",
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "architecture": architecture.hash,
        "study": study.name,
        "trial": trial.number,
        "operator": trial.operator,
        "lineage": _lineage(store, study, trial),
        "search_metrics": dict(trial.values),
        "steps": [unit.steps for unit in store.units(study.id, trial.number) if unit.state is UnitState.DONE],
    }
    if trained is not trial:
        header["final"] = {
            "trial": trained.number,
            "seed": trained.seed,
            "steps": config.finals.steps,
            "metrics": store.metrics(study.id, trained.number, 0),
        }
    header |= {
        "costs": {
            "length": assembly.shape(config).length,
            "parameters": costs.parameters,
            "flops": costs.expected_flops,
        },
        "task": config.task.written(),
        "data_sha256": study.data_hash,
        "recipe": config.recipe or "the defaults",
        "environment": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }
    return header


def _lineage(store: Store, study: Study, trial: Trial, most: int = 20) -> list[str]:
    """The trial's ancestors, nearest first, each with the operator that made it."""
    lines: list[str] = []
    queue, seen = list(trial.parents), {trial.number}
    while queue and len(lines) < most:
        number = queue.pop(0)
        if number in seen:
            continue
        seen.add(number)
        parent = store.trial(study.id, number)
        lines.append(f"trial {number} ({parent.operator}, {parent.architecture_hash[:12]})")
        queue += parent.parents
    return lines


def _weights(store: Store, study: Study, trained: Trial) -> bytes:
    import torch
    from safetensors.torch import save

    from nas.training import checkpoints

    done = [unit for unit in store.units(study.id, trained.number) if unit.checkpoint_uri]
    if not done:
        raise NasError(f"Trial {trained.number} has no checkpoint: it was trained with `checkpoints: null`, or failed.")
    last = done[-1]
    state = checkpoints.read(Checkpoint(last.checkpoint_uri or "", last.checkpoint_sha256 or ""), torch.device("cpu"))
    # A tied embedding is one tensor under two names, which safetensors refuses; a copy of each loads the same.
    return save({name: value.detach().clone().contiguous() for name, value in state["model"].items()})
