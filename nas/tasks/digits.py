"""Handwritten digits as short sequences: 1,797 images of 8 x 8 pixels, with scikit-learn, so nothing is downloaded.

E. Alpaydin and C. Kaynak 1998, "Optical Recognition of Handwritten Digits", UCI. B batch, T patches or rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nas.tasks.contract import Split, Task
from nas.tasks.options import one_of, whole_number
from nas.tasks.prepared import prepared
from nas.tasks.registry import task
from searchspace.contract import Context
from searchspace.tree import Scalar

ORDER = 20_250_101  # seeds the one order of the images that the split is cut from
PARTS: dict[Split, tuple[int, int]] = {"train": (0, 1257), "validation": (1257, 1527), "test": (1527, 1797)}
Images = tuple[Tensor, Tensor]  # [B, T, features] from 0 to 1, classes [B]


@task("digits")
class Digits(Task):
    """pieces: `patches` reads an image as 16 patches of 2 x 2 pixels, `rows` as 8 rows of 8."""

    def __init__(self, pieces: str = "patches", batch: int = 64) -> None:
        one_of("pieces", pieces, ("patches", "rows"))
        whole_number("batch", batch)
        if batch > PARTS["train"][1]:
            raise ValueError(f"batch must be at most {PARTS['train'][1]}, the images to train on, but got {batch}.")
        self.pieces, self.batch = pieces, batch
        self.length, self.features = (16, 4) if pieces == "patches" else (8, 8)

    def prepare(self, cache: Path | None) -> None:
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
        """Every image once an epoch, in an order of the epoch's own; what does not fill a batch is left out."""
        low, high = PARTS[split]
        epoch, place = divmod(index, (high - low) // self.batch)
        order = np.random.default_rng([seed, epoch]).permutation(high - low)
        chosen = torch.from_numpy(low + order[place * self.batch : (place + 1) * self.batch])
        return self.images[chosen], self.classes[chosen]

    def held_out(self, split: Split) -> Iterator[Images]:
        low, high = PARTS[split]
        return iter([(self.images[low:high], self.classes[low:high])])

    def loss(self, model: nn.Module, batch: Images, context: Context) -> Tensor:
        """Mean nats an image."""
        images, classes = batch
        return F.cross_entropy(model(images, context).float(), classes)

    def metrics(self, model: nn.Module, batches: Iterable[Images]) -> dict[str, float]:
        """error: the fraction of images given a wrong class. loss: nats an image."""
        nats = wrong = total = 0.0
        for images, classes in batches:
            logits = model(images, Context()).float()
            nats += float(F.cross_entropy(logits, classes, reduction="sum"))
            wrong += int((logits.argmax(-1) != classes).sum())
            total += len(classes)
        return {"error": wrong / total, "loss": nats / total}


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
