"""A task that kills the worker of the wider architectures, as a machine that goes down does."""

import os

import torch
from torch.nn import functional as F

from nas.tasks import Task


class Lost(Task):
    length, batch, evaluation_batches = 8, 4, 2

    def requires(self):
        return {"kind": "decoder", "vocabulary": 2}

    def draw(self, split, seed, index):
        number = (seed * 1_000_003 + index) * 3 + ["train", "validation", "test"].index(split)
        return torch.randint(2, (self.batch, self.length), generator=torch.Generator().manual_seed(number))

    def loss(self, model, batch, context):
        if min(len(each) for each in model.parameters() if each.ndim == 1) == 16:  # the width of a norm
            os._exit(1)
        return F.cross_entropy(model(batch, context).flatten(0, 1), batch.flatten())
