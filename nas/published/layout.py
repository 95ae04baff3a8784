"""Layouts: which weight of a public implementation becomes which parameter here.

A layout is data: a table of rules, the sizes that shapes determine, and the weights that are ignored. In a rule, `{n}`
is the number of a layer. `{a}`, `{b}` and `{c}` are the indices of its blocks in our body: attention, feed-forward, and
with an encoder the attention to it between the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

from searchspace.errors import nearest
from searchspace.tree import Block

Make = Callable[[Tensor], Tensor]
Rename = str | Callable[[re.Match[str]], str]


@dataclass(frozen=True)
class Rule:
    """Our parameter `target` is made from `sources`: `make` is applied to each, and the results are stacked along the
    rows.
    """

    target: str
    sources: tuple[str, ...]
    make: Make = lambda source: source

    def at(self, **numbers: Any) -> Rule:
        """This rule for one layer."""
        return Rule(self.target.format(**numbers), tuple(s.format(**numbers) for s in self.sources), self.make)

    def made(self, weights: Mapping[str, Tensor]) -> Tensor:
        """The parameter: what `make` returns for each source [R, ...], one below the other, [sum of R, ...]."""
        parts = [self.make(weights[source]) for source in self.sources]
        return parts[0] if len(parts) == 1 else torch.cat(parts)


def tensor(target: str, *sources: str, make: Make = lambda source: source) -> tuple[Rule, ...]:
    return (Rule(target, sources, make),)


def linear(target: str, *sources: str, make: Make = lambda source: source) -> tuple[Rule, ...]:
    """A linear map that stacks the rows of `sources`, with its bias if there is one."""
    return tuple(Rule(f"{target}.{kind}", tuple(f"{s}.{kind}" for s in sources), make) for kind in ("weight", "bias"))


def norm(target: str, source: str) -> tuple[Rule, ...]:
    """A norm, whose weight is our gain."""
    return Rule(f"{target}.gain", (f"{source}.weight",)), Rule(f"{target}.bias", (f"{source}.bias",))


def hidden(width: int, rows: int) -> dict[str, int]:
    """The option of feed-forward blocks that gives this hidden width, written as in the zoo if possible."""
    return {"feed_forward.hidden": rows} if rows % width else {"feed_forward.expand": rows // width}


def part(of: int, *which: int) -> Make:
    """The rows of the maps `which`, from rows that `of` maps share in equal parts."""
    return lambda source: torch.cat([source.chunk(of)[i] for i in which])


def each(
    rules: Iterable[Rule], layers: int, *, blocks: int = 2, names: Mapping[str, str] = MappingProxyType({})
) -> Iterator[Rule]:
    """`rules` for every layer, which is several consecutive blocks here; `names` fill the other braces."""
    rules = list(rules)
    for n in range(layers):
        places = {letter: blocks * n + i for i, letter in enumerate("abc"[:blocks])}
        yield from (rule.at(n=n, **places, **names) for rule in rules)


class Weights(dict[str, Tensor]):
    """A state dict without the prefix that models with a head add. Raises ValueError for a missing name."""

    def __missing__(self, name: str) -> Tensor:
        raise ValueError(f"the weights hold no {name!r}.{nearest(name, self)}")

    def rows(self, name: str) -> int:
        return self[name].shape[0]

    def is_tied(self, copy: str, name: str) -> bool:
        """Whether the weight `copy` equals `name`, or is missing because it would be a copy."""
        return copy not in self or torch.equal(self[copy], self[name])

    def count(self, before: str) -> int:
        """The number of layers, whose names are `before`, a number and a dot. Raises ValueError if there is none."""
        pattern = re.compile(re.escape(before) + r"(\d+)\.")
        found = {int(match[1]) for name in self if (match := pattern.match(name))}
        if not found:
            raise ValueError(f"the weights hold no {before + '0'!r}.{nearest(before + '0', self)}")
        return max(found) + 1


@dataclass(frozen=True)
class Layout:
    """One public implementation.

    zoo: the architectures that it fits. prefix: what models with a head add before the names of the bare model. fields:
    options that the weights determine, in the form of `searchspace.zoo.changed`. reshape: other changes that they
    determine. left_out: patterns of names that are ignored on purpose. optional: patterns of names that only some heads
    read. tied: copies of another weight, which must be equal to it. renamed: patterns of names in other releases, and
    their names in the newest. unread: options that shapes do not determine. head: options that the implementation has
    once for its blocks and the layer before the logits of tokens, with the name of the latter.
    """

    zoo: tuple[str, ...]
    prefix: str
    fields: Callable[[Weights], dict[str, Any]]
    rules: Callable[[Weights], Iterable[Rule]]
    reshape: Callable[[Block, Weights], Block] = lambda root, weights: root
    left_out: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    tied: Mapping[str, str] = field(default_factory=dict)
    renamed: Mapping[str, Rename] = field(default_factory=dict)
    unread: tuple[str, ...] = ("heads",)
    head: Mapping[str, str] = field(default_factory=lambda: {"eps": "head_eps", "activation": "head_activation"})

    def weights(self, state_dict: Mapping[str, Tensor]) -> Weights:
        """The state dict with the names of the newest release, without its prefix and the ignored names."""
        named = {self._name(name): value for name, value in state_dict.items()}
        return Weights({name: value for name, value in named.items() if not self._is_left_out(name)})

    def _name(self, name: str) -> str:
        name = name.removeprefix(self.prefix)
        for old, new in self.renamed.items():
            name = re.sub(old, new, name)
        return name

    def _is_left_out(self, name: str) -> bool:
        return any(re.fullmatch(pattern, name) for pattern in self.left_out)
