"""The Evolved Transformer of the zoo equals a plain form of its two cells: loops over steps, without our blocks."""

import math

import pytest
import torch
from torch import Tensor, nn

from searchspace import zoo
from searchspace.contract import Context, Streams
from searchspace.model.build import build

HEADS, MORE_HEADS = 8, 16


def norm(x: Tensor, gain: Tensor, bias: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-6).sqrt() * gain + bias


def attention(block: nn.Module, x: Tensor, y: Tensor, allowed: Tensor, heads: int) -> Tensor:
    """allowed: [B, Tq, Tk]; the projections have no biases."""
    D = x.shape[2] // heads
    q = x @ block.query.weight.T
    k, v = (y @ block.key_value.weight.T).chunk(2, dim=2)
    outs = []
    for h in range(heads):
        own = slice(h * D, (h + 1) * D)
        scores = torch.einsum("bid,bjd->bij", q[..., own], k[..., own]) / math.sqrt(D)
        weights = scores.masked_fill(~allowed, -math.inf).softmax(2)
        outs.append(weights.nan_to_num() @ v[..., own])
    return torch.cat(outs, dim=2) @ block.output.weight.T


def pad_channels(x: Tensor, width: int) -> Tensor:
    return torch.cat([x, x.new_zeros(*x.shape[:2], width - x.shape[2])], dim=2)


def taps(x: Tensor, kernel: int, *, causal: bool) -> list[Tensor]:
    """The input of tap k at each position, with zeros beyond the ends; each [B, T, C]."""
    left = kernel - 1 if causal else kernel // 2
    longer = torch.cat([x.new_zeros(len(x), left, x.shape[2]), x, x.new_zeros(len(x), kernel, x.shape[2])], dim=1)
    return [longer[:, k : k + x.shape[1]] for k in range(kernel)]


def separable(operation: nn.Module, x: Tensor, kernel: int, *, causal: bool) -> Tensor:
    near = taps(x, kernel, causal=causal)
    mixed = sum(operation.taps[:, k] * near[k] for k in range(kernel))
    return mixed @ operation.map.weight.T + operation.map.bias


def dense(layer: nn.Module, x: Tensor) -> Tensor:
    return x @ layer.weight.T + layer.bias


def encoder_cell(cell: list[nn.Module], x: Tensor, real: Tensor) -> Tensor:
    C, (gated, branched, read, fed) = x.shape[2], cell
    normed = [lambda x, r=r: norm(x, r.norm.gain, r.norm.bias) for r in cell]
    here = real[:, :, None]

    y, maps = normed[0](x), gated.of[0].inner
    W1, W2, b1, b2 = maps.weight[:C], maps.weight[C:], maps.bias[:C], maps.bias[C:]
    x = x + (y @ W1.T + b1) * torch.sigmoid(y @ W2.T + b2)

    y, block = normed[1](x) * here, branched.of[0]
    left, right = block.branches
    near = taps(y, 3, causal=False)
    R = sum(near[k] @ right.map.weight[:, :, k].T for k in range(3)) + right.map.bias
    z = dense(left.map, y).relu() + pad_channels(R.relu(), 4 * C)
    z = norm(z, block.norm.weight, block.norm.bias) * here
    x = x + pad_channels(separable(block.last, z, 9, causal=False), C)

    y = normed[2](x)
    x = x + attention(read.of[0], y, y, real[:, None].expand(-1, x.shape[1], -1), HEADS)
    feed = fed.of[0]
    return x + dense(feed.output, dense(feed.inner, normed[3](x)).relu())


def decoder_cell(cell: list[nn.Module], x: Tensor, memory: Tensor | None, source: Tensor | None) -> Tensor:
    C, T = x.shape[2], x.shape[1]
    normed = [lambda x, r=r: norm(x, r.norm.gain, r.norm.bias) for r in cell]
    past = torch.ones(T, T, dtype=torch.bool).tril().expand(len(x), -1, -1)

    def over_memory(block: nn.Module, y: Tensor) -> Tensor:
        assert source is not None
        return attention(block, y, memory, source[:, None].expand(-1, T, -1), HEADS)

    y = normed[0](x)
    if memory is None:
        x = x + attention(cell[0].of[0], y, y, past, MORE_HEADS)
    else:
        (first,), (second,) = cell[0].of[0].of
        x = x + attention(first, y, y, past, MORE_HEADS) + over_memory(second, y)

    y, block = normed[1](x), cell[1].of[0]
    L = separable(block.branches[0], y, 11, causal=True).relu()
    R = separable(block.branches[1], y, 7, causal=True)
    z = norm(L + pad_channels(R, 2 * C), block.norm.weight, block.norm.bias)
    x = x + separable(block.last, z, 7, causal=True)

    y = normed[2](x)
    x = x + attention(cell[2].of[0], y, y, past, HEADS)
    if memory is not None:
        x = x + over_memory(cell[3].of[0], normed[3](x))
    z, feed = dense(cell[-1].of[0].inner, normed[-1](x)), cell[-1].of[0]
    return x + dense(feed.output, norm(z * torch.sigmoid(z), feed.norm.weight, feed.norm.bias))


def sinusoids(length: int, width: int) -> Tensor:
    rows = []
    for p in range(length):
        angles = [p * 10000 ** (-2 * m / width) for m in range(width // 2)]
        rows.append([wave(angle) for angle in angles for wave in (math.sin, math.cos)])
    return torch.tensor(rows, dtype=torch.float64)


def embedded(model: nn.Module, tokens: Tensor) -> Tensor:
    table = model.embedding.table.weight
    return table[tokens] * math.sqrt(table.shape[1]) + sinusoids(tokens.shape[1], table.shape[1])


def translated(model: nn.Module, source: Tensor, target: Tensor, real: Tensor) -> Tensor:
    memory = embedded(model, source)
    for cell in cells(model.encoder, 4):
        memory = encoder_cell(cell, memory, real)
    memory = norm(memory, model.encoder_norm.gain, model.encoder_norm.bias)
    return continued(model, cells(model.decoder, 5), target, memory, real)


def cells(stack: nn.ModuleList, blocks: int) -> list[list[nn.Module]]:
    """The residuals of a stack, with `blocks` of them in a cell."""
    return [list(stack)[i : i + blocks] for i in range(0, len(stack), blocks)]


def continued(model: nn.Module, stack: list[list[nn.Module]], tokens: Tensor, memory=None, real=None) -> Tensor:
    x = embedded(model, tokens)
    for cell in stack:
        x = decoder_cell(cell, x, memory, real)
    return norm(x, model.final_norm.gain, model.final_norm.bias) @ model.embedding.table.weight.T


def model_of(name: str) -> nn.Module:
    torch.default_generator.manual_seed(0)
    model = build(zoo.load(name, "tiny")).double().eval()
    for parameter in model.parameters():
        if parameter.ndim == 1:  # gains and biases start at one and zero, which would hide errors
            nn.init.normal_(parameter)
    return model


def check(model: nn.Module, found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
    weights = torch.randn_like(found)
    gradients = torch.autograd.grad((found * weights).sum(), list(model.parameters()))
    wanted = torch.autograd.grad((expected * weights).sum(), list(model.parameters()))
    for gradient, want in zip(gradients, wanted, strict=True):
        torch.testing.assert_close(gradient, want, atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("padded", [False, True])
def test_the_encoder_decoder_is_a_stack_of_the_published_cells(padded: bool) -> None:
    model = model_of("evolved_transformer")
    source, target = torch.randint(0, 256, (2, 11)), torch.randint(0, 256, (2, 13))
    real = torch.ones(2, 11, dtype=torch.bool)
    if padded:
        real[0, 8:] = False
    found = model(source, target, Context(memory_padding=real if padded else None))
    check(model, found, translated(model, source, target, real))


def test_the_language_model_is_a_stack_of_decoder_cells_without_a_memory() -> None:
    model, tokens = model_of("evolved_transformer_decoder"), torch.randint(0, 256, (2, 13))
    check(model, model(tokens), continued(model, cells(model.body, 4), tokens))


@torch.no_grad()
def test_decoding_in_pieces_equals_decoding_at_once() -> None:
    model = model_of("evolved_transformer")
    source, target = torch.randint(0, 256, (2, 11)), torch.randint(0, 256, (2, 23))
    context = Context(streams=Streams(), memory=model.encode(source))
    pieces = [model.decode(piece, context) for piece in target.split([1, 1, 9, 12], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), model(source, target))


def test_the_first_attention_has_twice_the_heads_but_no_more_than_sixteen_and_no_fewer_than_the_others() -> None:
    for size in zoo.sizes("evolved_transformer"):
        config = zoo.load("evolved_transformer", size).configured.config
        for cell in cells(config.decoder, 5):
            (first,), (second,) = cell[0].config.of[0].config.of
            others = {second.config.heads, cell[2].config.of[0].config.heads, cell[3].config.of[0].config.heads}
            assert len(others) == 1
            assert first.config.heads == max(min(2 * max(others), 16), max(others))


def test_attention_has_no_biases() -> None:
    model = model_of("evolved_transformer")
    attentions = [module for module in model.modules() if hasattr(module, "key_value")]
    assert not any("bias" in name for module in attentions for name, _ in module.named_parameters())
