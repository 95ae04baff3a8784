"""Event files that TensorBoard shows: `tensorboard --logdir FOLDER`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.callbacks.registry import callback
from nas.errors import NasError

FOLDER = "tensorboard"


@callback("tensorboard")
class TensorBoard:
    """Event files in the folder `tensorboard` of the training. Raises NasError if tensorboard is not installed."""

    written = FOLDER

    def __init__(self, folder: Path, about: Mapping[str, Any]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            raise NasError("The callback tensorboard needs a package: pip install tensorboard.") from None
        self._writer: Any = SummaryWriter(str(folder / FOLDER))
        self._writer.add_text("settings", "\n\n".join(f"{name}: {value}" for name, value in about.items()))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for name, value in values.items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()
