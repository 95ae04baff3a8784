"""Handwritten digits as short sequences: 1,797 images of 8 x 8 pixels from scikit-learn, so nothing is downloaded.

E. Alpaydin and C. Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI. B batch, T patches or rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from nas.options import Positive
from nas.tasks.classification import Classification
from nas.tasks.contract import Split
from nas.tasks.prepared import prepared
from nas.tasks.registry import task
from searchspace.contract import Context
from searchspace.tree import Scalar

ORDER = 20_250_101  # seed of the order of the images before they are split
PARTS: dict[Split, tuple[int, int]] = {"train": (0, 1257), "validation": (1257, 1527), "test": (1527, 1797)}
Images = tuple[Tensor, Tensor]  # [B, T, features] from 0 to 1, classes [B]


@task("digits")
class Digits(Classification):
    """pieces: `patches` reads an image as 16 patches of 2 x 2 pixels, `rows` as 8 rows of 8."""

    def __init__(self, pieces: Literal["patches", "rows"] = "patches", batch: Positive = 64) -> None:
        if batch > PARTS["train"][1]:
            raise ValueError(f"batch must be at most {PARTS['train'][1]}, the images to train on, but got {batch}.")
        self.pieces, self.batch = pieces, batch
        self.length, self.features = (16, 4) if pieces == "patches" else (8, 8)

    def prepare(self, cache: Path | None) -> None:
        """Read the images."""
        data = _load() if cache is None else _open(prepared(cache, "digits", _save))
        self._hash = hashlib.sha256(data.tobytes()).hexdigest()
        images = torch.from_numpy(data[:, :64].astype(np.float32) / 16)
        self.images = images if self.pieces == "rows" else _patches(images)
        self.images = self.images.reshape(len(data), self.length, self.features)
        self.classes = torch.from_numpy(data[:, 64].astype(np.int64))

    @property
    def data_hash(self) -> str:
        return self._hash

    def requires(self) -> dict[str, Scalar]:
        return {"kind": "encoder", "features": self.features, "classes": 10}

    def draw(self, split: Split, seed: int, index: int) -> Images:
        """Every image once an epoch, in a new order each epoch; images that do not fill a batch are left out."""
        low, high = PARTS[split]
        epoch, place = divmod(index, (high - low) // self.batch)
        order = np.random.default_rng([seed, epoch]).permutation(high - low)
        chosen = torch.from_numpy(low + order[place * self.batch : (place + 1) * self.batch])
        return self.images[chosen], self.classes[chosen]

    def held_out(self, split: Split) -> Iterator[Images]:
        low, high = PARTS[split]
        return iter([(self.images[low:high], self.classes[low:high])])

    def held_out_positions(self, split: Split) -> int:
        low, high = PARTS[split]
        return (high - low) * self.length

    def outputs(self, model: nn.Module, batch: Images, context: Context) -> tuple[Tensor, Tensor]:
        """The logits of the classes, [B, 10], and the classes, [B]."""
        images, classes = batch
        return model(images, context), classes


def _patches(images: Tensor) -> Tensor:
    """[N, 64] -> [N, 16, 4]: squares of 2 x 2 pixels, read like a page."""
    return images.view(-1, 4, 2, 4, 2).transpose(2, 3).reshape(-1, 16, 4)


def _load() -> np.ndarray:
    """[1797, 65] of uint8, in the order that is split: 64 pixels from 0 to 16, then the class."""
    from sklearn.datasets import load_digits  # takes a second: only the process that prepares pays for it

    images, classes = load_digits(return_X_y=True)
    data = np.concatenate([images, classes[:, None]], axis=1).astype(np.uint8)
    return data[np.random.default_rng(ORDER).permutation(len(data))]


def _save(folder: Path) -> None:
    np.save(folder / "digits.npy", _load())


def _open(folder: Path) -> np.ndarray:
    return np.load(folder / "digits.npy")
