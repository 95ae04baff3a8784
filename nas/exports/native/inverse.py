"""The inverse of the rules of `nas.published`: from our parameters to the weights of a public implementation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nas.errors import UsageError
from nas.exports.bundle import blocks_of
from nas.published.layout import Rule
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

AUTO_CLASS = "tessera_auto_class"  # in config.json, for the check
QUERY = re.compile(r"body\.\d+\.of\.0\.query\.weight")


@dataclass(frozen=True)
class Native:
    """config: the content of config.json. state: the weights under the names of transformers."""

    config: Mapping[str, Any]
    state: Mapping[str, Tensor]


def layers(state: Mapping[str, Tensor]) -> int:
    """The number of layers whose first block is attention with its own queries."""
    return sum(QUERY.fullmatch(name) is not None for name in state)


def configs(architecture: Architecture) -> dict[str, Any]:
    """One configuration of each kind of block in the model, by the block's name."""
    return {each.type.name: each.config for each in blocks_of(architecture)}


def unstacked(rules: Iterable[Rule], state: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The sources of `rules` that stack whole weights; None if a parameter of `state` belongs to no rule,
    or has another size."""
    waiting, found = dict(state), dict[str, "Tensor"]()
    for rule in rules:
        value = waiting.pop(rule.target, None)
        if value is not None:
            if len(value) % len(rule.sources):
                return None
            parts = value.chunk(len(rule.sources))
            found |= {source: part.contiguous() for source, part in zip(rule.sources, parts, strict=True)}
    return None if waiting else found


def is_again(
    architecture: Architecture, zoo_name: str, layout: str, state: Mapping[str, Tensor], options: Mapping[str, Any]
) -> bool:
    """Whether loading the weights `state` gives exactly `architecture`."""
    from nas.testing import published_architecture

    try:
        return published_architecture(zoo_name, state, layout, **options).hash == architecture.hash
    except (UsageError, SpaceError, ValueError):
        return False
