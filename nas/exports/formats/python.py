"""One readable Python file that needs only torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nas.exports.header import beside
from nas.exports.registry import export_format
from nas.exports.winner import Winner

SHOWN = ("study", "trial", "final", "lineage", "data_sha256", "licence")  # of the header, in the docstring of the file


@export_format("python")
class Python:
    """The code of exactly the blocks in use, with comments that name their sources. Loads a .safetensors file."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """One file with the ending .py."""
        return {beside(path, ".py"): text(winner).encode()}


def text(winner: Winner) -> str:
    """The file. Its docstring has the lineage of the trial."""
    import yaml

    from nas.exports.bundle import bundled

    shown = {name: winner.origin[name] for name in SHOWN if winner.origin.get(name)}
    head = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True, width=110).rstrip() if shown else ""
    return bundled(winner.architecture, head.replace('"""', "'''"))
