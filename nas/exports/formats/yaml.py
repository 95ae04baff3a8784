"""An architecture as YAML that builds, with its origin in a comment at the head of the file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nas.errors import UsageError
from nas.exports import header
from nas.exports.registry import export_format
from nas.exports.winner import Winner

WEIGHTS = ".safetensors"
OTHERS = {".py": "python", ".onnx": "onnx", ".pt2": "torch"}  # formats by the ending of their files


@export_format("yaml")
class Yaml:
    """The file that `nas.build`, `nas train` and `nas show` read."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """One file at `path`. Raises UsageError if its ending is that of another format."""
        if path.suffix == WEIGHTS:
            raise UsageError(f"{path}: the architecture is YAML; its weights go into {path.stem}{WEIGHTS} next to it.")
        if path.suffix in OTHERS:
            raise UsageError(
                f"{path}: the architecture is YAML. For {OTHERS[path.suffix]} name a folder: "
                f"--format {OTHERS[path.suffix]} --out {path.with_suffix('')}."
            )
        return {path: text(winner).encode()}


def text(winner: Winner) -> str:
    """The header as YAML in comment lines, then the architecture."""
    return header.comment(winner.origin) + winner.source.text()
