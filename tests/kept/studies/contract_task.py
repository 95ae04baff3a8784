"""A task in a file of the user's own that imports what CONTRIBUTING.md imports."""

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from nas.tasks.contract import Split, Task
from nas.tasks.registry import task
from searchspace.contract import Context
from searchspace.cost import Shape

SPLITS = ("train", "validation", "test")


@task("kept_echo")
class Echo(Task):
    """Sequences whose second half repeats the first."""

    evaluation_batches = 2

    def __init__(self, length: int = 32, batch: int = 16) -> None:
        self.length, self.batch = length, batch

    def requires(self) -> dict:
        return {"kind": "decoder", "vocabulary": 8}

    @property
    def shape(self) -> Shape:
        return Shape(batch=self.batch, length=self.length)

    def draw(self, split: Split, seed: int, index: int) -> Tensor:
        rng = np.random.default_rng([seed, SPLITS.index(split), index])
        half = rng.integers(8, size=(self.batch, self.length // 2))
        return torch.from_numpy(np.concatenate([half, half], axis=1))

    def loss(self, model: nn.Module, batch: Tensor, context: Context) -> Tensor:
        logits = model(batch[:, :-1], context)[:, self.length // 2 - 1 :]
        return F.cross_entropy(logits.flatten(0, 1), batch[:, self.length // 2 :].flatten())
