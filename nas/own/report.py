"""The result of checking a user's own blocks against what every block promises."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from nas.errors import UsageError
from nas.own import blocks
from searchspace.checking import CHECKS, Case, cases, compiles_as_one_graph, exports_as_a_program, failures
from searchspace.registry import BlockType
from searchspace.testing import primitives

LONGEST = 500  # characters of an error that are shown


@dataclass(frozen=True)
class Checked:
    """One promise of one block. configurations: how many were checked. errors: the error of each that broke it."""

    block: str
    promise: str
    configurations: int
    errors: dict[str, str]

    @property
    def row(self) -> dict[str, object]:
        """For a table."""
        result = f"{len(self.errors)} failed" if self.errors else "ok"
        return {"block": self.block, "promise": self.promise, "configurations": self.configurations, "result": result}


def checked(path: Path) -> list[Checked]:
    """Check every block that the file `path` registers. Raises BlockProblem or UsageError if there is none to check."""
    kinds = blocks.of_file(path)
    whole = [kind.name for kind in kinds if kind not in primitives(kind.role)]
    if whole:
        raise UsageError(
            f"{path}: these contain other blocks, and only single blocks can be checked: {', '.join(whole)}."
        )
    return [each for kind in kinds for each in _of_block(kind)]


def _of_block(kind: BlockType) -> list[Checked]:
    try:
        every = cases([kind])
    except Exception as error:  # of the user's configuration
        return [Checked(kind.name, "has a configuration with defaults", 1, {"defaults": _text(error)})]
    found = [
        Checked(kind.name, check.name, sum(map(check.on, every)), {id: _text(error) for id, error in errors.items()})
        for check, errors in failures(CHECKS, every).items()
    ]
    defaults = [case for case in every if case.defaults]
    found += [_graph(kind, each, defaults) for each in (compiles_as_one_graph, exports_as_a_program)]
    return [each for each in found if each.configurations] or [Checked(kind.name, USABLE, 1, {"defaults": NOWHERE})]


USABLE = "can be part of a model"
NOWHERE = "its capabilities exclude every model: it is neither causal nor bidirectional"


def _graph(kind: BlockType, run: Callable[[list[Case]], None], defaults: Iterable[Case]) -> Checked:
    chosen, errors = list(defaults), {}
    for case in chosen:
        try:
            run([case])
        except Exception as error:
            errors[case.id] = _text(error)
    return Checked(kind.name, run.__name__.replace("_", " "), len(chosen), errors)


def _text(error: Exception) -> str:
    """One line, with the type of an error that is not a broken promise."""
    said = " ".join(str(error).split())
    text = said if type(error) is AssertionError and said else f"{type(error).__name__}: {said}"
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
