"""Architectures layer by layer, aligned with one another so that they can be compared.

A layer is one block in a list of the model, such as `body[3]`, in one line of text:

    residual norm=rms_norm [attention heads=8]
    parallel [attention heads=4 | feed_forward, layer_norm]

Repeats are unrolled. A block that holds layers and does more than apply them in order has a line for itself, and a line
for each of its layers follows:

    repeat times=2 share_weights=true
    | step 1: attention heads=4
    | step 2: attention heads=4 (weights of step 1)

The other options of the model come first, one each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from searchspace import registry
from searchspace.language import schema
from searchspace.language.holes import plain
from searchspace.lines import AlignedLayer, merged
from searchspace.model.architecture import Architecture
from searchspace.model.drawing import ALWAYS
from searchspace.tree import Block, Scalar, Value

INNER = ("of", "stages", "decoder")  # the fields of a block in `UNROLLED` that hold its layers
MOST_STEPS = 100  # of a block that shares weights; each further step has the same lines


def aligned(architectures: Sequence[Architecture]) -> list[AlignedLayer]:
    """The options and layers of `architectures` in one list; equal layers share a line."""
    roots = [each.root for each in architectures]
    places = dict.fromkeys(name for root in roots for name in root.fields)
    options = [AlignedLayer("kind", tuple(root.name for root in roots))]
    layers: list[AlignedLayer] = []
    for place in places:
        values = [root.fields.get(place, ()) for root in roots]
        if all(isinstance(value, tuple) for value in values):
            layers += merged(place, [_lines(value) for value in values])
        else:
            written = any(place in root.fields and place in schema.written(root) for root in roots)
            texts = tuple(_text(root.fields[place]) if place in root.fields else "" for root in roots)
            options += [AlignedLayer(place, texts)] if written or len(set(texts)) > 1 else []
    return options + layers


def _lines(value: Value) -> list[str]:
    """A line for each block of a list, and one for each layer inside a block of `UNROLLED`."""
    found = []
    for block in _blocks(value):
        unroll = UNROLLED.get(block.name)
        if unroll is None:
            found.append(block_text(block))
        else:
            fields = {name: each for name, each in block.fields.items() if name not in INNER}
            found += [block_text(Block(block.name, fields)), *(f"| {line}" for line in unroll(block))]
    return found


def _same(block: Block) -> list[str]:
    """The layers of a block that applies them until it halts."""
    return _lines(block.fields["of"])


def _steps(block: Block) -> list[str]:
    """The layers of a repeat at each step; after the first step they have the weights of the first."""
    times, lines = block.fields["times"], _lines(block.fields["of"])
    assert isinstance(times, int)
    shared = [
        f"step {step}: {line} (weights of step 1)" for step in range(2, min(times, MOST_STEPS) + 1) for line in lines
    ]
    more = times - MOST_STEPS
    return [
        *(f"step 1: {line}" for line in lines),
        *shared,
        *([f"{more:,} more steps (weights of step 1)"] if more > 0 else []),
    ]


def _pairs(block: Block) -> list[str]:
    """The layers of a reversible block, each with the stream that its result is added to."""
    times, branches = block.fields["times"], block.fields["of"]
    assert isinstance(times, int) and isinstance(branches, tuple)
    once = [f"stream {i % 2 + 1}: {line}" for i, branch in enumerate(branches) for line in _lines(branch)]
    return once * times


def _stages(block: Block) -> list[str]:
    """The layers of each stage of an hourglass, then those after the length is restored."""
    stages, decoder = block.fields["stages"], block.fields["decoder"]
    assert isinstance(stages, tuple)
    found = [f"stage {number}: {line}" for number, stage in enumerate(stages, 1) for line in _lines(stage)]
    return found + [f"decoder: {line}" for line in _lines(decoder)]


UNROLLED: Mapping[str, Callable[[Block], list[str]]] = {
    "halting": _same,
    "hourglass": _stages,
    "repeat": _steps,
    "reversible": _pairs,
}


def block_text(block: Block) -> str:
    """A block without holes in one line."""
    known = registry.block_type(block.name).fields
    shown = schema.written(block) | {name: block.fields[name] for name in ALWAYS if name in block.fields}
    words, lists = [block.name], []
    for name in (name for name in block.fields if name in shown):
        value = block.fields[name]
        if not isinstance(value, tuple):
            words.append(f"{name}={_text(value)}")
        elif schema.accepted(known[name]).shape == "branches":
            lists.append(" | ".join(_list_text(branch) for branch in value if isinstance(branch, tuple)))
        else:
            lists.append(_list_text(value))
    return " ".join([*words, *(f"[{text}]" for text in lists)])


def _list_text(blocks: Iterable[Value]) -> str:
    return ", ".join(map(_text, blocks))


def _text(value: Value) -> str:
    if isinstance(value, Block):
        return block_text(value)
    if isinstance(value, tuple):
        return f"[{_list_text(value)}]"
    assert isinstance(value, Scalar)
    return plain(value)


def _blocks(value: Value) -> list[Block]:
    assert isinstance(value, tuple)
    return [block for block in value if isinstance(block, Block)]
