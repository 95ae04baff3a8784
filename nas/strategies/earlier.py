"""Results of an earlier study that a strategy may learn from, as plain data that a new study keeps.

What was read is kept with the new study, so it proposes the same points after a restart, even if the earlier study has
continued or was deleted since then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from searchspace.tree import Scalar


@dataclass(frozen=True)
class Earlier:
    """The results of the study `study`: for each trial its choices, its steps of training and its values.

    objectives: the places of the values among the objectives of the new search. All values are minimised.
    """

    study: str
    objectives: tuple[int, ...]
    choices: tuple[Mapping[str, Scalar], ...]
    steps: tuple[int, ...]
    values: tuple[tuple[float, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain data, in which each hole is named once."""
        holes = list(dict.fromkeys(path for each in self.choices for path in each))
        places = {path: place for place, path in enumerate(holes)}
        return {
            "objectives": list(self.objectives),
            "holes": holes,
            "choices": [[[places[path] for path in each], list(each.values())] for each in self.choices],
            "steps": list(self.steps),
            "values": [list(each) for each in self.values],
        }

    @classmethod
    def of(cls, study: str, kept: Mapping[str, Any]) -> Self:
        """What `as_dict` has made."""
        holes: Sequence[str] = kept["holes"]
        return cls(
            study,
            tuple(kept["objectives"]),
            tuple({holes[place]: value for place, value in zip(*each, strict=True)} for each in kept["choices"]),
            tuple(kept["steps"]),
            tuple(tuple(each) for each in kept["values"]),
        )
