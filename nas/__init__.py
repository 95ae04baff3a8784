"""Tessera: finds sequence-model architectures for your data, your device and your budget.

nas.search("examples/quickstart.yaml")            run a search, or go on with it
nas.open_study("runs/quickstart.db", "quickstart")  ask, tell, best, pareto
nas.build("best.yaml")                            a PyTorch module
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

    from nas.config.schema import SearchConfig
    from nas.engine.launch import Result
    from nas.study import Study

__all__ = ["build", "open_study", "search"]


def search(config: SearchConfig | str | Path, **options: Any) -> Result:
    """Run the search of a search file (or a `SearchConfig`) to the end of its budget; again, it resumes."""
    from nas.config import searchfile
    from nas.engine import launch

    return launch.search(searchfile.load(config) if isinstance(config, str | Path) else config, **options)


def open_study(url: str | Path, name: str, config: SearchConfig | str | Path | None = None) -> Study:
    """The study `name` in the database at `url`; with a search file it is made if it is not there."""
    from nas import study

    return study.open_study(url, name, config)


def build(architecture: str | Path) -> nn.Module:
    """The module of an architecture: a file, a name of the zoo, or STUDY:TRIAL."""
    from nas import architectures
    from searchspace.model import build as builder

    return builder.build(architectures.find(str(architecture)))
