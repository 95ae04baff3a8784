"""The trained weights of a trial, in a safetensors file next to the YAML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from nas.exports.header import beside
from nas.exports.registry import export_format
from nas.exports.winner import Winner

if TYPE_CHECKING:
    from torch import Tensor

SUFFIX = ".safetensors"


@export_format("safetensors")
class Safetensors:
    """The weights of the best seed of the finals; without finals those of the trial's last unit."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """One file like `path` but with the ending .safetensors. Raises NasError if the checkpoint is missing."""
        return {beside(path, SUFFIX): packed(winner.weights())}


def packed(state: Mapping[str, Tensor]) -> bytes:
    """A state dict as the bytes of a safetensors file."""
    from safetensors.torch import save

    # A tied embedding is one tensor under two names, which safetensors rejects. Two copies load the same.
    return save({name: value.detach().clone().contiguous() for name, value in state.items()})
