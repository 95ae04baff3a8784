"""Initial states of a decoder's recurrent blocks from the final states of the encoder's.

Sutskever et al. 2014, https://arxiv.org/abs/1409.3215, pass on the states of every layer, and nothing else. The k-th
block of the decoder with `start: memory` starts from the k-th recurrent block of the encoder, both in the order in
which they are built. A block with shared weights is one block; it passes on the states of its last call.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

from searchspace.registry import Configured


def handed_over(encoder: tuple[Configured, ...], decoder: tuple[Configured, ...]) -> int:
    """The number of blocks of `decoder` that start from `encoder`. Raises ValueError if the encoder has no matching
    states.
    """
    takers = [block for block in _recurrent(decoder) if block.config.start == "memory"]
    givers = list(_recurrent(encoder))
    if len(givers) < len(takers):
        raise ValueError(
            f"{len(takers)} blocks of the decoder start from the encoder, start: memory, but it has {len(givers)} "
            "recurrent blocks; give it more, or set start: zeros in some blocks of the decoder."
        )
    for k, (giver, taker) in enumerate(zip(givers, takers, strict=False)):
        if giver.type.name != taker.type.name:
            raise ValueError(
                f"block {k} of the decoder with start: memory is {taker.type.name}, but recurrent block {k} of the "
                f"encoder is {giver.type.name}, whose states have another form; make both the same."
            )
        given, taken = (math.prod(block.config.layout) for block in (giver, taker))
        if given != taken:
            raise ValueError(
                f"block {k} of the decoder with start: memory has a state of width {taken}, but recurrent block {k} of "
                f"the encoder leaves {given}, both directions together; set hidden so that they are equal."
            )
    return len(takers)


def check_nothing_is_lost(encoder: tuple[Configured, ...], norm: Configured, started: int) -> None:
    """Raises ValueError if a part of `encoder` has no effect.

    This happens if the decoder reads nothing but final states, and that part does not influence them.
    """
    givers = len(list(_recurrent(encoder)))
    if started < givers:
        raise ValueError(
            f"the decoder reads nothing from the encoder but the states of {started} of its {givers} recurrent blocks, "
            "so the others would have no effect; set start: memory in as many blocks of the decoder."
        )
    if list(_recurrent(encoder))[-1].config.hidden is not None:
        raise ValueError(
            "the decoder reads nothing from the encoder but states of recurrent blocks, so the linear map that hidden "
            "adds to the last of them would have no effect; leave hidden out there."
        )
    if not _ends_recurrent(encoder) or norm.type.name != "none":
        raise ValueError(
            "the decoder reads nothing from the encoder but states of recurrent blocks, so blocks or norms after the "
            "last of them would have no effect; end the encoder with it, with encoder_norm: none."
        )


def _ends_recurrent(blocks: tuple[Configured, ...]) -> bool:
    last = blocks[-1]
    if hasattr(last.config, "start"):
        return True
    plain = last.type.name in ("repeat", "sequence") or getattr(last.config, "order", None) == "pre"
    return plain and bool(last.config.of) and _ends_recurrent(last.config.of)


def _recurrent(value: Any) -> Iterator[Configured]:
    """The blocks in `value` that can start from a state, in the order in which they are built."""
    if isinstance(value, tuple):
        for item in value:
            yield from _recurrent(item)
    elif isinstance(value, Configured):
        if hasattr(value.config, "start"):
            yield value
            return
        below = [block for field in fields(value.config) for block in _recurrent(getattr(value.config, field.name))]
        copies = getattr(value.config, "times", 1) if getattr(value.config, "share_weights", True) is False else 1
        yield from below * copies
