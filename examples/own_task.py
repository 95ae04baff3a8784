"""A task of your own: one file with one subclass of Task. This one asks for the parity of the bits seen so far."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from nas.tasks import Metric, Task


class Parity(Task):
    """Say after every bit whether the number of ones so far is odd: easy for a recurrence, hard for attention."""

    reports = (Metric("error", direction="minimize", unit="fraction"),)  # what objectives may name

    def __init__(self, length: int = 32, batch: int = 32):
        self.length, self.batch = length, batch

    def requires(self):
        return {"kind": "decoder", "vocabulary": 2}

    def draw(self, split, seed, index):
        number = (seed * 1_000_003 + index) * 3 + ["train", "validation", "test"].index(split)
        bits = torch.randint(2, (self.batch, self.length), generator=torch.Generator().manual_seed(number))
        return bits, bits.cumsum(1) % 2

    def loss(self, model, batch, context):
        bits, parity = batch
        return F.cross_entropy(model(bits, context).flatten(0, 1), parity.flatten())

    def metrics(self, model, batches):
        wrong = [(model(bits).argmax(-1) != parity).float().mean() for bits, parity in batches]
        return {"error": float(torch.stack(wrong).mean())}
