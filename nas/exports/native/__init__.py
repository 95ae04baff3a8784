"""Models that transformers has: its own configuration and weights, which need no remote code. One file per model.

The rules that load public weights (`nas.published`) are inverted. The result is used only if loading it gives exactly
this architecture again, so a model that differs in one option is not mistaken for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from nas.exports.native.bert import as_bert
from nas.exports.native.gpt2 import as_gpt2
from nas.exports.native.inverse import AUTO_CLASS, Native
from nas.exports.native.llama import as_llama
from nas.exports.winner import Winner
from searchspace.model.architecture import Architecture

if TYPE_CHECKING:
    from torch import Tensor

Known = Callable[[Architecture, Mapping[str, "Tensor"], int], Native | None]
KNOWN: dict[str, tuple[Known, ...]] = {"decoder": (as_llama, as_gpt2), "encoder": (as_bert,)}  # by the outermost block

__all__ = ["AUTO_CLASS", "Native", "native"]


def native(winner: Winner, state: Mapping[str, Tensor]) -> Native | None:
    """`winner` as a model of transformers; None if it is not exactly one of them."""
    length = dict(winner.origin.get("costs") or {}).get("length") or 0
    for known in KNOWN.get(winner.architecture.root.name, ()):
        if (found := known(winner.architecture, state, int(length))) is not None:
            return found
    return None
