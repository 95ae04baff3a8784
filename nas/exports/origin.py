"""The origin of an exported architecture: lineage, metrics, finals, costs, task, vocabulary, recipe, environment.

Writing an architecture as YAML, as it is stored in the database of its study, needs no torch.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from nas.config.schema import SearchConfig
from nas.exports.header import MADE_BY
from nas.finals.verdict import EntrantResult, Verdict
from nas.latency.evidence import left_to_machines
from nas.report.trials import at_trial_depth
from nas.schedulers import registry
from nas.store import Reader, Study, Trial
from nas.store.records import SEARCH
from searchspace.cost import Cost
from searchspace.lines import kept

if TYPE_CHECKING:
    from searchspace.model.architecture import Architecture

PACKAGES = ("tessera-nas", "torch", "ray", "optuna", "sqlalchemy")
ANCESTORS = 20  # the most that are listed
ONE_LENGTH = ("decoder", "encoder")  # models whose costs depend on one length alone, that which a drawing has


@dataclass(frozen=True)
class StoredArchitecture:
    """The architecture of a trial. The property `architecture` parses it, with torch, at its first use."""

    hash: str
    written: str
    costs: Mapping[str, int]  # see `costs_at`
    name: str  # STUDY:TRIAL, for messages
    blocks: Mapping[str, str]  # the user's own, see `nas.own.blocks`

    def text(self) -> str:
        """Readable YAML."""
        return self.written

    @cached_property
    def architecture(self) -> Architecture:
        """The parsed architecture. Raises SpaceError or BlockProblem if it cannot be read."""
        return _read(self.written, self.name, self.blocks)


def stored(store: Reader, study: Study, trial: Trial) -> StoredArchitecture:
    """The architecture of `trial`, with its costs at the sequence length of the task.

    It is parsed, and its costs are computed, only if the database has no drawing of it, or one of an encoder-decoder.
    Raises SpaceError or BlockProblem if it then cannot be read.
    """
    config = SearchConfig.stored(study.config)
    hash, name = trial.architecture_hash, f"{study.name}:{trial.address}"
    drawing = kept(store.drawing(study.id, hash))
    if drawing and drawing.rows[0].label.split(" ")[0] in ONE_LENGTH:
        costs = costs_at(drawing.length, drawing.cost)
        return StoredArchitecture(hash, trial.architecture, costs, name, config.blocks)
    from nas.config.parts import parts
    from searchspace.model.build import cost

    read = _read(trial.architecture, name, config.blocks)
    shape = at_trial_depth(store, study, trial.number, parts(config).shape)
    return StoredArchitecture(read.hash, read.text(), costs_at(shape.length, cost(read, shape)), name, config.blocks)


def costs_at(length: int, cost: Cost) -> dict[str, int]:
    """The costs for a header, for sequences of `length` positions."""
    numbers = cost.numbers()
    return {"length": length, "parameters": numbers["parameters"], "flops": numbers["flops"]}


def _read(text: str, name: str, own: Mapping[str, str]) -> Architecture:
    from nas.own import blocks
    from searchspace.model.architecture import Architecture

    blocks.load(own)
    return Architecture.parse(text, name)


def origin(
    store: Reader,
    study: Study,
    trial: Trial,
    trained: Trial,
    source: StoredArchitecture,
    finals: Verdict | None,
    entrant: EntrantResult | None,
) -> dict[str, Any]:
    """The header of an export as plain data; `trained` is the run whose weights are exported."""
    config = SearchConfig.stored(study.config)
    header: dict[str, Any] = {
        "made_by": MADE_BY,
        "exported_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "architecture": source.hash,
        "study": study.name,
        **({"trial": trial.number} if trial.final is None else {"final": trial.final}),
        "lineage": lineage(store, study, trial),
        "search": {
            "state": trial.state.value,
            "seed": trial.seed,
            "steps": trial.steps or 0,
            "horizon": horizon(config, trial, trial.steps or 0),
            "objectives": dict(trial.values),
            "metrics": {} if trial.rung is None else store.metrics(study.id, trial.number, trial.rung),
        },
    }
    if waiting := _pending(store, study, trial):
        header["search"]["pending"] = waiting
    if trained is not trial and finals is not None and entrant is not None:
        header["finals"] = _finals(store, study, trained, finals, entrant)
    return header | {
        "costs": dict(source.costs),
        "task": config.task.written(),
        **({"task_source": config.task_source} if config.task_source else {}),
        **({"blocks": dict(config.blocks)} if config.blocks else {}),
        **({"vocabulary": config.vocabulary} if config.vocabulary else {}),
        "data_sha256": study.data_hash,
        **({"latency": latency} if (latency := _latency(config, trial)) else {}),
        "recipe": dict(config.recipe) or "the defaults",
        "environment": _environment(store, study, trained),
    }


def _pending(store: Reader, study: Study, trial: Trial) -> list[str]:
    """The objectives that machines outside the cluster have not measured yet."""
    if not (some := left_to_machines(study.config)):
        return []
    known = {unit.rung for unit in store.units(study.id, trial.number) if unit.later}
    return [name for rung, name, _ in some if rung not in known]


def _latency(config: SearchConfig, trial: Trial) -> dict[str, Any]:
    """How the latencies of `trial` were measured, by the name of the objective; empty if there are none."""
    evidence = (trial.evidence or {}).items()
    measured = {name: found for name, found in evidence if isinstance(found, dict) and "milliseconds" in found}
    if not measured:
        return {}
    from nas.config.parts import parts

    listed = zip(config.objectives, parts(config).objectives, strict=True)
    devices = {made.name: written.options.get("device", "cpu") for written, made in listed}
    kept = ("phase", "milliseconds", "low", "high", "batch", "length", "threads", "kind", "device")
    return {
        name: {
            "on": found["device"].get("asked", devices.get(name, "cpu")),
            **{key: found[key] for key in kept if key in found},
        }
        for name, found in measured.items()
    }


def _finals(store: Reader, study: Study, trained: Trial, finals: Verdict, entrant: EntrantResult) -> dict[str, Any]:
    """The run whose weights are exported, the results of all seeds, and for the winner the stored verdict."""
    steps = store.units(study.id, trained.number)[-1].steps
    found: dict[str, Any] = {
        "final": trained.final,
        "seed": trained.seed,
        "steps": steps,
        "metrics": store.metrics(study.id, trained.number, 0),
        "all_seeds": {
            "objective": finals.objective,
            "validation": list(entrant.validation[steps]),
            "test": list(entrant.test[steps]),
        },
    }
    if trained.recipe:
        found["recipe"] = dict(trained.recipe)
    if entrant.is_winner:
        found["verdict"] = finals.sentence.removeprefix("Verdict: ")
    return found


def _environment(store: Reader, study: Study, trained: Trial) -> dict[str, Any]:
    """The training device, the version that made the study, and the versions that export it."""
    devices = sorted({unit.device for unit in store.units(study.id, trained.number) if unit.device})
    return {
        "device": ", ".join(devices) or "unknown",
        "study_started_with": f"tessera-nas {study.version}",
        **versions(),
    }


def versions() -> dict[str, str]:
    """The versions of Python and of the installed packages."""
    return {"python": platform.python_version()} | {name: found for name in PACKAGES if (found := _version(name))}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def horizon(config: SearchConfig, trial: Trial, steps: int) -> int:
    """The steps at which the learning-rate schedule of `trial` ends; `steps` for a run of the finals."""
    if trial.purpose != SEARCH:
        return steps
    return registry.make(config.scheduler.name, None, **config.scheduler.options).horizon(trial.place)


def lineage(store: Reader, study: Study, trial: Trial) -> list[str]:
    """The trial and its ancestors, nearest first, each with the operator that made it."""
    lines = [f"{trial.name} ({trial.operator})"]
    queue, seen = list(trial.parents), {trial.number}
    while queue and len(lines) <= ANCESTORS:
        number = queue.pop(0)
        if number in seen:
            continue
        seen.add(number)
        parent = store.trial(study.id, number)
        lines.append(f"{parent.name} ({parent.operator}, {parent.architecture_hash[:12]})")
        queue += parent.parents
    return lines
