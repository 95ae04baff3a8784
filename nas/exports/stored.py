"""An architecture as stored in the database of a study, with its costs. Writing it as YAML needs no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from nas.config.schema import SearchConfig
from nas.report.trials import at_trial_depth
from nas.store import Reader, Study, Trial
from searchspace.cost import Cost
from searchspace.lines import kept

if TYPE_CHECKING:
    from searchspace.model.architecture import Architecture

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
