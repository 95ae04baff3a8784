"""Copies of short sequences, as slowly as the variable KEPT_SLEEP says: so that a search can be stopped in the middle."""

import os
import time

import torch
from torch.nn import functional as F

from nas.tasks import Task


class Slow(Task):
    evaluation_batches = 2

    def __init__(self, length: int = 8, batch: int = 4):
        self.length, self.batch = length, batch

    def requires(self):
        return {"kind": "decoder", "vocabulary": 24}

    def draw(self, split, seed, index):
        number = (seed * 1_000_003 + index) * 3 + ["train", "validation", "test"].index(split)
        return torch.randint(24, (self.batch, self.length), generator=torch.Generator().manual_seed(number))

    def loss(self, model, batch, context):
        time.sleep(float(os.environ.get("KEPT_SLEEP", "0")))
        return F.cross_entropy(model(batch, context).flatten(0, 1), batch.flatten())
