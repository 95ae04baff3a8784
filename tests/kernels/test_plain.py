"""Plain mode: every operation, registered or not, gives the same numbers by operators of PyTorch alone."""

import threading

import pytest
import torch

from kernels.attention.additive_attention import additive_attention
from kernels.attention.attention import attention
from kernels.attention.decode_attention import attention_step
from kernels.attention.nadaraya_watson import COMPACT, nadaraya_watson
from kernels.attention.packed_attention import packed_attention
from kernels.attention.relative_attention import relative_attention
from kernels.dispatch import plain
from kernels.dispatch.mode import is_plain
from kernels.dispatch.registry import operations
from kernels.linear_attention.elu_features import elu_features
from kernels.linear_attention.linear_attention import linear_attention
from kernels.recurrence.attending_gru import attending_gru
from kernels.recurrence.gru import gru
from kernels.recurrence.lstm import fused_lstm, lstm
from kernels.rowwise.remembered_linear import remembered_linear
from kernels.sparse_attention.banded_attention import Reading, band, banded_attention
from kernels.sparse_attention.block_sparse_attention import block_sparse_attention
from kernels.sparse_attention.long_short_attention import long_short_attention
from kernels.sparse_attention.lsh_attention import lsh_attention
from kernels.sparse_attention.sliding_window_attention import sliding_window_attention
from kernels.sparse_attention.span_attention import span_attention
from kernels.sparse_attention.strided_attention import strided_attention

B, H, T, D = 2, 2, 7, 4
HEADS = (B, H, T, D)
MASK = torch.arange(T)[:, None, None, None] < torch.tensor([T, 4])[:, None]  # [T, 1, B, 1]


def _banded(q, k, v, p, r):
    return banded_attention([Reading(band(T, before=0, reach=3), q, p, k, v, r)])


def _lsh(q, v):
    return lsh_attention(q, q, v, torch.arange(B * H * T).view(B, H, 1, T) % 3, chunk=3, causal=True)


# Every function of tensors in kernels that is no registered operation: (what to call, the shapes of its inputs).
FUNCTIONS = {
    "additive": (lambda *x: additive_attention(*x, causal=True), [HEADS] * 3 + [(H, D)]),
    "attention_step": (lambda q, k, v: attention_step(q, [(k, v)]), [(B, H, 1, D), HEADS, HEADS]),
    "attending_gru": (
        lambda *x: attending_gru(*x)[:2],
        [(T, B, 3 * H), (B, 5, 3), (B, 5, D), (B, H), (B, H), (3, H), (3,), (3 * H, H), (3 * H, D)],
    ),
    "attending_gru-output": (
        attending_gru,
        [(T, B, 3 * H), (B, 5, 3), (B, 5, D), (B, H), (B, H), (3, H), (3,), (3 * H, H), (3 * H, H), (H, H + D)],
    ),
    "banded": (_banded, [HEADS] * 4 + [(H, 3, D)]),
    "elu": (lambda x: elu_features(x * 1), [HEADS]),
    "gru-after": (lambda a, w, b, h: gru(a, w, b, h, MASK), [(T, 1, B, 3 * D), (1, 3 * D, D), (1, D), (1, B, D)]),
    "gru-before": (lambda a, w, h: gru(a, w, None, h), [(T, 2, B, 3 * D), (2, 3 * D, D), (2, B, D)]),
    "linear-both_ways": (lambda *x: linear_attention(x[0] ** 2, x[1] ** 2, x[2], causal=False), [HEADS] * 3),
    "long_short": (lambda *x: long_short_attention(*x, window=4), [HEADS] * 3 + [(B, H, 2, D)] * 2),
    "lsh": (_lsh, [HEADS] * 2),
    "lstm": (lambda *x: lstm(*x, MASK), [(T, 1, B, 4 * D), (1, 4 * D, D), (1, B, D), (1, B, D)]),
    "lstm-fused": (fused_lstm, [(B, T, 3), (4 * D, 3), (4 * D,), (1, 4 * D, D), (1, B, D), (1, B, D)]),
    "lstm-fused-two": (fused_lstm, [(B, T, 3), (8 * D, 3), (8 * D,), (2, 4 * D, D), (2, B, D), (2, B, D)]),
    **{f"nadaraya_watson-{kind}": (lambda *x, kind=kind: nadaraya_watson(*x, kind), [HEADS] * 3) for kind in COMPACT},
    "nadaraya_watson-far": (lambda q, k, v: nadaraya_watson(30 * q, 30 * k, v, "gaussian", causal=True), [HEADS] * 3),
    "nadaraya_watson-gaussian": (lambda *x: nadaraya_watson(*x, "gaussian", causal=True), [HEADS] * 3),
    "relative": (lambda *x: relative_attention(*x, causal=True), [HEADS] * 3 + [(5, D)] * 2),
    "remembered_linear": (remembered_linear, [(B, T, D), (3, D)]),
    "sliding_window": (lambda *x: sliding_window_attention(*x, window=3, causal=True), [(B, H, 40, D)] * 3),
    "span": (lambda *x: span_attention(*x, ramp=2, zeros=False), [HEADS] * 3 + [(3, D), (H, 1)]),
    "strided": (lambda *x: strided_attention(*x, stride=3), [HEADS] * 3),
}


def _results(call, shapes):
    """Outputs and gradients of a weighted sum of them."""
    generator = torch.Generator().manual_seed(0)
    inputs = [torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    outs = call(*inputs)
    outs = [outs] if isinstance(outs, torch.Tensor) else list(outs)
    weights = [torch.randn(out.shape, generator=generator, dtype=out.dtype) for out in outs]
    return outs, torch.autograd.grad(outs, inputs, weights, materialize_grads=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_gives_the_same_numbers_by_pytorch_alone(name, only_pytorch):
    expected = _results(*FUNCTIONS[name])
    with plain(), only_pytorch() as check:
        found = _results(*FUNCTIONS[name])
        check(*found[0])
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-7)


def test_drops_weights_too(only_pytorch):
    q = torch.randn(1, 2, 256, 4)
    blocks = torch.arange(4).expand(1, 1, 4, 4)
    options = {"dropout": 0.5, "causal": True}
    with plain(), only_pytorch():
        for call in (
            lambda: attention(q, q, torch.ones_like(q), **options),
            lambda: packed_attention(
                *[q[0].transpose(0, 1)] * 2, torch.ones(256, 2, 4), torch.tensor([0, 256]), dropout=0.5
            ),
            lambda: block_sparse_attention(q, q, torch.ones_like(q), blocks, rows=64, columns=64, dropout=0.5),
        ):
            out = call()
            assert out.mean().item() == pytest.approx(1, abs=0.15)
        assert not attention(q, q, torch.ones_like(q), **options).allclose(torch.ones(()))


def test_belongs_to_one_thread_and_ends_with_its_block():
    seen = []
    with plain():
        thread = threading.Thread(target=lambda: seen.append(is_plain()))
        thread.start()
        thread.join()
        with plain():
            pass
        assert is_plain()
    assert not is_plain()
    assert seen == [False]


@plain()
def _decorated():
    return is_plain()


def test_decorates_a_function():
    assert (_decorated(), _decorated(), is_plain()) == (True, True, False)


def test_a_compiled_model_is_compiled_again_inside():
    """Code that was compiled outside must not run inside, nor the other way round."""
    graphs = []

    def backend(module, _):
        graphs.append("tessera" in str(module.graph))
        return module

    torch._dynamo.reset()
    inputs = [torch.randn(HEADS) for _ in range(3)] + [torch.randn(H, D)]
    compiled = torch.compile(additive_attention, backend=backend, fullgraph=True)
    expected = compiled(*inputs)
    with plain():
        torch.testing.assert_close(compiled(*inputs), expected)
    compiled(*inputs)
    assert graphs == [True, False]
    torch._dynamo.reset()


def test_no_custom_operator_is_left_untested():
    """Each operator of ours is reached by a registered operation or by one of the functions above."""
    defined = {name.removeprefix("tessera::") for name in torch._C._dispatch_get_all_op_names() if "tessera::" in name}
    forward = {name.partition(".")[0] for name in defined if not name.endswith("_backward")}
    registered = set(operations())
    tiled = {f"{way}_{name}" for way in ("tiled", "blocked", "chunked") for name in registered}
    assert forward - registered - tiled == {
        "additive_attention",
        "attending_gru",
        "gaussian",
        "gru",
        "lstm",
        "nadaraya_watson",
    }
