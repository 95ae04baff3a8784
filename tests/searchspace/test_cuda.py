"""On a GPU, every block and every model of the zoo computes what it computes on a CPU."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch

from searchspace import zoo
from searchspace.contract import Choices, Context, Given
from searchspace.model.build import build
from searchspace.registry import block_types
from searchspace.testing import examples, primitives

DEVICE = "cuda"
B, T, C, S = 2, 131, 16, 5  # batch, positions, width, positions of the memory
KINDS = [kind for role in ("block", "norm", "position") for kind in primitives(role)]
MODELS = [name for name in zoo.names() if "tiny" in zoo.sizes(name)]
pytestmark = [pytest.mark.cuda, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(autouse=True)
def _full_precision():
    torch.backends.cudnn.allow_tf32, tf32 = False, torch.backends.cudnn.allow_tf32
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    torch.default_generator.manual_seed(0)
    yield
    torch.set_float32_matmul_precision(before)
    torch.backends.cudnn.allow_tf32 = tf32


def _cases(kind):
    """(what varies, the configured block): every example both ways and causal, as far as the block has these forms."""
    for causal in (True, False):
        capable = kind.module.capabilities.causal if causal else kind.module.capabilities.bidirectional
        if capable and (causal or "causal" in kind.given):
            yield from examples(kind, Given(dim=C, causal=causal, memory=True))


def _run(block, x, memory, padding, choices, dtype=torch.float32):
    """The output of `block` and the gradients of its input and parameters, on the CPU as float32."""
    x = x.clone().requires_grad_()
    positions = torch.arange(T, device=x.device)
    context = Context(positions=positions, memory=memory, padding=padding, choices=choices)
    context = replace(context, segments=(positions // 4 % 2).expand(B, -1))
    with torch.autocast(x.device.type, dtype, enabled=dtype != torch.float32):
        y = block(x, context)
        total = (y.float() * torch.arange(C, device=x.device).cos()).sum() + context.loss().to(x.device)
    gradients = torch.autograd.grad(total, [x, *block.parameters()], allow_unused=True)
    return [tensor.detach().float().cpu() for tensor in (y, *gradients) if tensor is not None]


def _moved(choices):
    """The selections made on the CPU, for a second pass on the GPU."""
    if choices is not None:
        choices.rewind()
        choices._made = [made.to(DEVICE) for made in choices._made]
    return choices


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.role}-{kind.name}")
def test_blocks_compute_what_they_compute_on_a_cpu(kind):
    for varied, configured in _cases(kind):
        block = configured.build().eval()
        x, memory = torch.randn(B, T, C), torch.randn(B, S, C)
        padding = torch.ones(B, T, dtype=torch.bool)
        padding[0, 100:] = False
        choices = Choices() if kind.module.capabilities.selects else None
        expected = _run(block, x, memory, padding, choices)
        moved = copy.deepcopy(block).to(DEVICE)
        found = _run(moved, x.to(DEVICE), memory.to(DEVICE), padding.to(DEVICE), _moved(choices))
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(
                a, b, rtol=1e-3, atol=1e-4 * max(1.0, b.abs().max().item()), msg=partial("{}: {}".format, varied)
            )


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.role}-{kind.name}")
def test_blocks_run_in_bfloat16_autocast(kind):
    for varied, configured in _cases(kind):
        block, x, memory = (
            configured.build().eval().to(DEVICE),
            torch.randn(B, T, C).to(DEVICE),
            torch.randn(B, S, C).to(DEVICE),
        )
        found = _run(block, x, memory, None, None, torch.bfloat16)
        assert all(tensor.isfinite().all() for tensor in found), varied


def _inputs(architecture, device):
    """Inputs of a model of this kind, always the same."""
    generator, config = torch.Generator().manual_seed(0), architecture.configured.config
    if architecture.root.name == "encoder" and config.features:
        return (torch.randn(2, 16, config.features, generator=generator).to(device),)
    tokens = torch.randint(0, config.vocabulary, (2, 24), generator=generator).to(device)
    return (tokens, tokens) if architecture.root.name == "encoder_decoder" else (tokens,)


@pytest.mark.parametrize("name", MODELS)
def test_models_of_the_zoo_compute_what_they_compute_on_a_cpu(name):
    architecture = zoo.load(name, "tiny")
    model = build(architecture).eval()
    if any(
        kind.module.capabilities.selects for kind in block_types("block").values() if kind.name in architecture.text()
    ):
        pytest.skip("which positions it reads depends on rounding")
    moved = copy.deepcopy(model).to(DEVICE)
    expected, found = model(*_inputs(architecture, "cpu")), moved(*_inputs(architecture, DEVICE))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-3, atol=1e-3)
    for each, output in ((model, expected), (moved, found)):
        output.float().square().mean().backward()
        assert all(value.grad is None or value.grad.isfinite().all() for value in each.parameters())
    for (key, a), b in zip(moved.named_parameters(), model.parameters(), strict=True):
        if b.grad is not None:
            scale = max(1e-3, b.grad.abs().max().item())
            torch.testing.assert_close(
                a.grad.cpu(), b.grad, rtol=1e-2, atol=2e-3 * scale, msg=partial("{}: {}".format, key)
            )
