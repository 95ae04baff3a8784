"""In plain mode each model of the zoo computes the same by operators of PyTorch alone, so that it can be exported."""

import pytest
import torch

from kernels.dispatch import plain
from searchspace import zoo
from searchspace.model.build import build

LENGTH = 9


def _arguments(architecture) -> tuple[torch.Tensor, ...]:
    config = architecture.configured.config
    if getattr(config, "features", None):
        return (torch.randn(1, LENGTH, config.features),)
    tokens = torch.randint(0, config.vocabulary, (1, LENGTH))
    return (tokens, tokens) if architecture.root.name == "encoder_decoder" else (tokens,)


@pytest.mark.parametrize("name", zoo.names())
def test_runs_by_pytorch_alone_forward_and_backward(name: str, only_pytorch) -> None:
    torch.default_generator.manual_seed(0)
    architecture = zoo.load(name, "tiny" if "tiny" in zoo.sizes(name) else zoo.BASE)
    model = build(architecture).eval()
    arguments = _arguments(architecture)
    expected = model(*arguments)
    expected.square().mean().backward()
    gradients = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    with plain(), only_pytorch() as check:
        found = model(*arguments)
        check(found)
        found.square().mean().backward()
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(p.grad, gradient, atol=1e-4, rtol=1e-3)


@pytest.mark.parametrize("name", ["gru", "performer", "reformer"])
def test_its_exported_graph_holds_only_operators_of_pytorch(name: str) -> None:
    architecture = zoo.load(name, "tiny")
    model = build(architecture).eval()
    with plain(), torch.no_grad():
        program = torch.export.export(model, _arguments(architecture))
    called = [node.target for node in program.graph.nodes if node.op == "call_function"]
    assert {each.namespace for each in called if isinstance(each, torch._ops.OpOverload)} == {"aten"}
