"""A task whose trials fail on purpose, each width in a way of its own."""

from __future__ import annotations

import time

import torch
from torch.nn import functional as F

from nas.tasks import Task


class Failing(Task):
    """The parity of the bits so far; some widths fail, and so do positions that are too short for the sequence."""

    def __init__(self, length: int = 16, batch: int = 4):
        self.length, self.batch = length, batch
        self.evaluation_batches = 2

    def requires(self):
        return {"kind": "decoder", "vocabulary": 2}

    def draw(self, split, seed, index):
        number = (seed * 1_000_003 + index) * 3 + ["train", "validation", "test"].index(split)
        bits = torch.randint(2, (self.batch, self.length), generator=torch.Generator().manual_seed(number))
        return bits, bits.cumsum(1) % 2

    def loss(self, model, batch, context):
        bits, parity = batch
        width = min(len(each) for each in model.parameters() if each.ndim == 1)  # of a norm
        if width == 24:
            raise ValueError("this width is not allowed")
        if width == 32:
            raise MemoryError("there is no memory for this width")
        if width == 40:
            time.sleep(2)
        loss = F.cross_entropy(model(bits, context).flatten(0, 1), parity.flatten())
        return loss * float("nan") if width == 48 else loss

    def metrics(self, model, batches):
        wrong = float(torch.stack([(model(bits).argmax(-1) != parity).float().mean() for bits, parity in batches]).mean())
        return {"error": wrong, "accuracy": 1 - wrong}
