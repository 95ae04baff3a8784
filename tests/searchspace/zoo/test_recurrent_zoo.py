"""The recurrent models and the kernel regressions of the zoo: their published sizes, and that they learn."""

import pytest
import torch
from torch.nn import functional as F

from searchspace import zoo
from searchspace.model.build import build, cost

SEQUENCES = ["bahdanau", "bahdanau_luong", "seq2seq_lstm"]
MODELS = [*SEQUENCES, "gru", "lstm", "nadaraya_watson", "nadaraya_watson_fixed"]


@pytest.mark.parametrize("name", MODELS)
def test_the_tiny_size_is_small_and_learns(name):
    torch.default_generator.manual_seed(0)
    architecture = zoo.load(name, "tiny")
    assert 20_000 <= cost(architecture).parameters <= 200_000
    model, tokens = build(architecture), torch.randint(256, (2, 21))
    assert cost(architecture).parameters == sum(parameter.numel() for parameter in model.parameters())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)

    def loss():
        seen = tokens[:, :-1]
        logits = model(tokens.flip(1), seen) if name in SEQUENCES else model(seen)
        return F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())

    first = loss().item()
    for _ in range(15):
        optimizer.zero_grad()
        loss().backward()
        optimizer.step()
    assert loss().item() < first - 1


def test_sizes_are_the_published_ones():
    # "384M parameters, of which 64M are pure recurrent connections": section 3.4, 32 M on either side.
    assert cost(zoo.load("seq2seq_lstm")).parameters == 384_000_000 + 8 * 4000  # and biases
    assert cost(zoo.load("lstm")).parameters == 2 * 10_000 * 650 + 2 * (8 * 650**2 + 4 * 650)
    assert cost(zoo.load("lstm", "large")).parameters == 2 * 10_000 * 1500 + 2 * (8 * 1500**2 + 4 * 1500)  # 66 M
