"""A run of Weights & Biases, offline unless $WANDB_MODE says otherwise. `wandb sync` uploads it later."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.callbacks.registry import callback
from nas.errors import NasError


@callback("wandb")
class WeightsAndBiases:
    """A run in the folder of the training. Raises NasError if wandb is not installed."""

    shared = True  # one folder holds many runs

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        try:
            import wandb
        except ImportError:
            raise NasError("The callback wandb needs a package: pip install wandb.") from None
        mode: Any = os.environ.get("WANDB_MODE", "offline")
        name = str(about.get("name", "training"))
        self._run: Any = wandb.init(project="tessera", name=name, dir=str(folder), config=dict(about), mode=mode)

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        self._run.finish()
