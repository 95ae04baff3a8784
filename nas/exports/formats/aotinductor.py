"""A package that AOTInductor compiled for this machine; it runs without a Python model."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from nas.errors import NasError
from nas.exports.graphs import programs
from nas.exports.header import inside
from nas.exports.registry import export_format
from nas.exports.winner import Winner

COMPILERS = ("c++", "g++", "clang++")


@export_format("aotinductor")
class AotInductor:
    """model.pt2, the whole prompt. `torch._inductor.aoti_load_package(file)` runs it; a C++ compiler makes it."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """Raises UsageError that names a block which cannot be exported, NasError if there is no C++ compiler."""
        if not any(map(shutil.which, COMPILERS)):
            raise NasError(f"AOTInductor needs a C++ compiler, but found none of {', '.join(COMPILERS)}.")
        import torch

        made = programs(winner.architecture, winner.weights())
        with tempfile.TemporaryDirectory() as folder:
            place = torch._inductor.aoti_compile_and_package(made.prompt, package_path=f"{folder}/model.pt2")
            return {inside(path, "aotinductor", "model.pt2"): Path(place).read_bytes()}
