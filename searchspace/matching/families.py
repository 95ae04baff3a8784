"""The families of baselines: models of every width and depth that read and predict what the winner does.

`transformer` has pre-norm layers of attention and a GELU block of four times the width, as GPT-2. `transformer_modern`
has RMSNorm, SwiGLU of 8/3 of the width and no biases, as LLaMA. `primer` convolves queries, keys and values over three
positions and squares a ReLU (So et al. 2021, https://arxiv.org/abs/2109.08668). All three have rotary positions, so
that they differ in their layers alone. Every other name of the zoo, a file and an `Architecture` are scaled; see
`scaling`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from searchspace import zoo
from searchspace.errors import SpaceError, nearest
from searchspace.matching.scaling import Scalable, heads_near
from searchspace.model.architecture import Architecture
from searchspace.tree import Block

TIED = ("tie_embeddings",)
DATA = ("vocabulary", "source_vocabulary", "features", "classes", "tokens", "segments")
SCALE = ("scale_embedding", "embedding_start", "dropout")
FILE_ENDINGS = (".yaml", ".yml")


@dataclass(frozen=True)
class Family:
    """The models of one family for one winner.

    build: (width, depth) -> the model; it raises SpaceError if they do not fit together.
    usual_depth: the depth of a model of usual proportions, for its width.
    oddness: how unusual the heads of a width are; 0 is usual.
    anchors: three valid widths from which the costs of other widths are estimated; one width if it cannot change.
    depths: the smallest and the largest depth.
    """

    name: str
    build: Callable[[int, int], Architecture]
    usual_depth: Callable[[int], float]
    oddness: Callable[[int], float]
    anchors: tuple[int, ...] = (48, 96, 192)
    depths: tuple[int, int] = (1, 200)


def family(given: str | Architecture, winner: Architecture) -> Family:
    """The family `given` for `winner`: a name of `available`, any name of the zoo, or an architecture.

    Raises SpaceError if there is none, or it has no model of the winner's kind.
    """
    if isinstance(given, Architecture):
        return _scaled(given, winner.root, repr(given))
    if given in FAMILIES:
        return _layered(given, winner.root)
    if given in zoo.names():
        return _scaled(zoo.load(given), winner.root, given)
    known = sorted({*FAMILIES, *zoo.names()})
    raise SpaceError(f"No baseline is called {given!r}.{nearest(given, known)} Known: {', '.join(known)}, or a file.")


def read(given: str | Path | Architecture, winner: Architecture) -> str | Architecture:
    """`given`, or the architecture in the file of that path. The file may leave out what the winner reads and predicts.

    Raises SpaceError if the file is missing or is not an architecture.
    """
    if isinstance(given, Architecture) or given in FAMILIES or given in zoo.names():
        return given if isinstance(given, Architecture) else str(given)
    path = Path(given)
    if path.is_file():
        data: dict[str, Any] = {field: winner.root.fields.get(field) for field in DATA}
        return Architecture.load(path, given={field: value for field, value in data.items() if value is not None})
    if path.suffix in FILE_ENDINGS:
        raise SpaceError(f"There is no file {str(path)!r} with a baseline.")
    return str(given)


def available(kind: str) -> list[str]:
    """The families that have models of `kind`: decoder, encoder or encoder_decoder."""
    return [name for name, layers in FAMILIES.items() if kind in layers.kinds]


@dataclass(frozen=True)
class _Layers:
    mixer: Callable[..., Block]  # of the number of heads and further fields
    feed_forward: Block
    norm: str = "layer_norm"
    kinds: tuple[str, ...] = ("decoder", "encoder", "encoder_decoder")


def _attention(heads: int, **fields: Any) -> Block:
    return Block("attention", {"heads": heads, **fields})


def _primer_attention(heads: int) -> Block:
    return Block("primer_attention", {"heads": heads, "kernel": 3})


FAMILIES: Mapping[str, _Layers] = {
    "transformer": _Layers(_attention, Block("feed_forward", {"expand": 4, "activation": "gelu"})),
    "transformer_modern": _Layers(
        _attention, Block("gated_feed_forward", {"expand": 4, "gate": "silu", "bias": False}), "rms_norm"
    ),
    "primer": _Layers(
        _primer_attention, Block("feed_forward", {"expand": 4, "activation": "squared_relu"}), kinds=("decoder",)
    ),
}


def _layered(name: str, root: Block) -> Family:
    layers = FAMILIES[name]
    if root.name not in layers.kinds:
        raise SpaceError(
            f"The baseline {name} exists as {' and '.join(layers.kinds)}, but the winner is of kind {root.name}. "
            f"For this kind there are: {', '.join(available(root.name))}."
        )
    stacks = 2 if root.name == "encoder_decoder" else 1
    return Family(name, partial(_model, layers, root), partial(_usual_depth, stacks), _oddness_of_heads)


def _usual_depth(stacks: int, width: int) -> float:
    """Published Transformers have about sqrt(width) / 2.3 layers."""
    return math.sqrt(width) / 2.3 / stacks


def _model(layers: _Layers, root: Block, width: int, depth: int) -> Architecture:
    norm, heads = Block(layers.norm, {}), _heads(width)
    mixer, feed_forward = (_residual(norm, block) for block in (layers.mixer(heads), layers.feed_forward))
    fields = {field: root.fields[field] for field in (*DATA, *TIED, *SCALE) if field in root.fields}
    fields |= {"width": width, "position": Block("rotary", {}), "final_norm": norm}
    if root.name == "encoder_decoder":
        memory = _residual(norm, layers.mixer(heads, over="memory"))
        fields |= {"encoder": (mixer, feed_forward) * depth, "decoder": (mixer, memory, feed_forward) * depth}
        fields |= {"encoder_norm": norm}
    else:
        fields |= {"body": (mixer, feed_forward) * depth}
    return Architecture.from_block(Block(root.name, fields))


def _residual(norm: Block, block: Block) -> Block:
    return Block("residual", {"norm": norm, "order": "pre", "of": (block,)})


def _heads(width: int) -> int:
    """The number of heads for which the width of a head is even and nearest to the usual one."""
    return heads_near(width, width / (32 if width < 512 else 64), even=True)


def _oddness_of_heads(width: int) -> float:
    return 0.5 * abs(math.log(_heads(width) * (32 if width < 512 else 64) / width))


def _scaled(model: Architecture, root: Block, name: str) -> Family:
    """The family of `model` in other widths and depths, with the data of the winner's `root`."""
    if model.root.name != root.name:
        raise SpaceError(
            f"The baseline {name} is of kind {model.root.name}, but the winner is of kind {root.name}. "
            f"For this kind there are: {', '.join(available(root.name))}."
        )
    data = {field: root.fields[field] for field in DATA if field in root.fields}
    scalable = Scalable(_tied(Block(root.name, {**model.root.fields, **data}), root))
    return Family(
        name, scalable.build, scalable.usual_depth, scalable.oddness, scalable.anchors, depths=scalable.depths
    )


def _tied(root: Block, winner: Block) -> Architecture:
    """The model of `root`, with logits that share the table of tokens if those of the winner do."""
    tied = {field: winner.fields[field] for field in TIED if field in winner.fields}
    try:
        own = Architecture.from_block(Block(root.name, {**root.fields, **tied}))
        _ = own.configured
    except SpaceError:  # the body ends wider than the table, so the logits need their own
        own = Architecture.from_block(root)
        _ = own.configured
    return own
