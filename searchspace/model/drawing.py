"""An architecture as a tree of lines: each has its output shape, parameters, share of the FLOPs and streaming state.

Equal blocks in a row are drawn once, with `x N`. A block that is called N times with one set of weights says
`shared x N`. The costs of a line are those of all its copies and calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from functools import lru_cache
from operator import attrgetter

from searchspace.cost import Cost, Shape, total
from searchspace.language.holes import plain
from searchspace.lines import Row, text
from searchspace.model.architecture import Architecture
from searchspace.parts import Part
from searchspace.registry import Configured

ALWAYS = ("heads",)  # options that are shown at their default too

Scale = Callable[[Cost], Cost]
_but_for_its_name = attrgetter(*(field.name for field in fields(Part) if field.name != "name"))


@dataclass(frozen=True, kw_only=True)
class Placed(Row):
    """A line with its block and its place; for several blocks that repeat, `part` is the last of them."""

    part: Part


def rows(architecture: Architecture, shape: Shape | None = None, *, defaults: bool = False) -> list[Placed]:
    """The lines of `architecture` for an input of `shape`, the model itself first.

    `defaults` also shows the options that are at their default. Raises SpaceError if values do not fit together.
    """
    shape = Shape() if shape is None else shape
    root = Part(name="", shape=shape, block=architecture.configured)
    drawing = _Drawing(width=architecture.configured.config.width, flops=root.cost().expected_flops, defaults=defaults)
    return list(drawing.one(root, depth=0, count=1, scale=lambda cost: cost))


def draw(architecture: Architecture, shape: Shape | None = None, *, defaults: bool = False) -> str:
    """`rows` as text in columns; the first line names the columns. Raises SpaceError if values do not fit together."""
    return text(rows(architecture, shape, defaults=defaults))


def _family(part: Part) -> str:
    """The folder of its block; linear and sparse attention are attention."""
    return part.block.type.family.rpartition("_")[2] if part.block else ""


@dataclass(frozen=True)
class _Drawing:
    width: int
    flops: int
    defaults: bool = False

    def one(self, part: Part, depth: int, count: int, scale: Scale) -> Iterator[Placed]:
        """The lines of a part that follows itself `count` times, and of the parts in it."""
        calls = part.count * count
        yield self._row(depth, self._label(part), part, scale(part.cost().times(count)), calls, part.shared)
        below = [below for below in part.below() if _visible(below)]
        yield from self._several(below, depth + 1, lambda cost: scale(part.scaled(cost).times(count)))

    def _several(self, parts: list[Part], depth: int, scale: Scale) -> Iterator[Placed]:
        alike = [_but_for_its_name(part) for part in parts]
        numbers = [alike.index(each) for each in alike]  # equal parts have equal ones; not all of them have a hash
        start = 0
        while start < len(parts):
            period, count = _repetition(numbers[start:])
            group = parts[start : start + period]
            start += period * count
            if period == 1:
                yield from self.one(group[0], depth, count, scale)
            else:
                cost = total(part.cost() for part in group).times(count)
                yield self._row(depth, "repeat", group[-1], scale(cost), count)
                for part in group:
                    yield from self.one(part, depth + 1, 1, _times(count, scale))

    def _row(self, depth: int, label: str, part: Part, cost: Cost, count: int, shared: bool = False) -> Placed:
        shape = part.shape if part.block is None else part.block.after(part.shape)
        output = (shape.batch, shape.length, part.width or self.width * _widening(part))
        return Placed(
            part=part,
            depth=depth,
            label=label,
            family="combinators" if label == "repeat" else _family(part),
            output=output,
            cost=cost,
            flops_share=cost.expected_flops / self.flops if self.flops else 0.0,
            count=count,
            shared=shared,
        )

    def _label(self, part: Part) -> str:
        """`norm: layer_norm`, `attention heads=8`: its place, unless that is a list, its block and its options."""
        if part.block is None:
            return part.name
        place = "" if "." in part.name or not part.name else f"{part.name}: "
        return place + (_kept_words if part.block.is_ours else _words)(part.block, self.defaults)


def _words(block: Configured, defaults: bool) -> str:
    return " ".join([block.type.name, *settings(block, defaults)])


_kept_words = lru_cache(maxsize=4096)(_words)


def _widening(part: Part) -> int:
    """The width of the output of `part` divided by that of its input."""
    if part.block is None or part.block.type.role != "block":
        return 1
    return part.block.type.module.widening(vars(part.block.config))


def _times(count: int, scale: Scale) -> Scale:
    return lambda cost: scale(cost.times(count))


def _visible(part: Part) -> bool:
    return part.block is not None or part.own.parameters > 0 or part.own.flops > 0


def _repetition(numbers: list[int]) -> tuple[int, int]:
    """(period, count) of the repetition that covers most of `numbers` from their start; the shortest period wins."""
    best = (1, 1)
    for period in range(1, len(numbers) // 2 + 1):
        count = 1
        while numbers[count * period : (count + 1) * period] == numbers[:period]:
            count += 1
        if count > 1 and period * count > best[0] * best[1]:
            best = (period, count)
    return best


def settings(block: Configured, defaults: bool = False) -> Iterator[str]:
    """`name=value` for every scalar option that is not at its default or is in `ALWAYS`; with `defaults` for all."""
    for name, field in block.type.fields.items():
        value = getattr(block.config, name)
        if field.role is None and (defaults or name in ALWAYS or value != field.default):
            yield f"{name}={_short(value) if isinstance(value, Configured) else plain(value)}"


def _short(block: Configured) -> str:
    """A block in one word, such as `rotary(base=1e6)`."""
    options = ",".join(settings(block))
    return f"{block.type.name}({options})" if options else block.type.name
