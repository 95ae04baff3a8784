"""Linformer, Nystromformer and the Long-Short Transformer in the zoo: their published sizes, and that they learn."""

import pytest
import torch
from torch.nn import functional as F

from searchspace import zoo
from searchspace.contract import Context, Streams
from searchspace.model.build import build, cost

NAMES = ["linformer", "nystromformer", "long_short_transformer", "long_short_encoder"]


def test_linformer_is_roberta_with_one_matrix_more() -> None:
    released, unused = 124_697_433, 2 * 768 + 768  # two places before the first, and one kind of segment
    assert cost(zoo.load("linformer")).parameters == released - unused + 256 * 512
    assert cost(zoo.load("linformer", "slots_128")).parameters == released - unused + 128 * 512
    assert cost(zoo.load("linformer", "headwise")).parameters == released - unused + 12 * 2 * 256 * 512


def test_nystromformer_is_bert_with_a_kernel_for_every_head() -> None:
    C, E, V, layers = 768, 3072, 30_000, 12
    layer = 4 * C**2 + 4 * C + 2 * C * E + E + C + 4 * C
    entry = (V + 512 + 2) * C + 2 * C
    head = C**2 + C + 2 * C + V
    assert cost(zoo.load("nystromformer")).parameters == entry + layers * (layer + 12 * 65) + head


def test_the_long_short_language_model_has_the_size_of_its_paper() -> None:
    paper, released = (cost(zoo.load("long_short_transformer", size)) for size in ("base", "released"))
    assert round(paper.parameters / 1e6) == 44
    assert released.parameters - paper.parameters == 12 * 512  # the bias of r_net_chunk in each layer


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_one_learns_at_its_longest(name: str) -> None:
    torch.default_generator.manual_seed(0)
    model = build(zoo.load(name, "tiny"))
    assert 20_000 < sum(parameter.numel() for parameter in model.parameters()) < 200_000
    tokens = torch.randint(0, 256, (4, 128))
    optimiser, losses = torch.optim.Adam(model.parameters(), 3e-3), []
    for _ in range(8):
        logits = model(tokens)
        target = tokens.flatten() if logits.dim() == 3 else torch.tensor([0, 1, 0, 1])
        loss = F.cross_entropy(logits.flatten(0, -2), target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.95 * losses[0]


def test_the_language_model_reads_in_pieces() -> None:
    torch.default_generator.manual_seed(0)
    model = build(zoo.load("long_short_transformer", "tiny")).double().eval()
    tokens, context = torch.randint(0, 256, (2, 100)), Context(streams=Streams())
    pieces = [model(piece, context) for piece in tokens.split([1, 30, 1, 68], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), atol=1e-9, rtol=1e-9)
