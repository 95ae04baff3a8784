"""What trains without torch's compiler does the same as with it."""

import sys
from functools import wraps

import pytest
import torch
from torch import nn

import kernels.rowwise.softmax  # noqa: F401
from nas.training.compiler import call_kernels_directly, step_directly
from nas.training.optimisers import make, optimisers


@pytest.fixture
def absent(monkeypatch):
    """As in a process that did not import the compiler."""
    import torch._dynamo  # noqa: F401  torch keeps it as an attribute, so the tests after this one find it

    for name in ("torch._dynamo", "torch._inductor"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def trained(name):
    """The weights after three steps by the optimiser `name`, and the optimiser."""
    torch.default_generator.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
    optimiser = make(name, model)
    for _ in range(3):
        optimiser.zero_grad()
        model(torch.randn(5, 4)).square().sum().backward()
        optimiser.step()
        optimiser.load_state_dict(optimiser.state_dict())
    return [*model.parameters()], optimiser


@pytest.mark.parametrize("name", optimisers())
def test_the_weights_are_bitwise_those_of_torch(name, request):
    expected, theirs = trained(name)
    request.getfixturevalue("absent")
    found, ours = trained(name)

    assert all(map(torch.equal, found, expected))
    assert isinstance(ours, type(theirs))


def test_the_step_of_a_users_own_optimiser_keeps_its_decorators(absent):
    called = []

    def noted(step):
        @wraps(step)
        def call(self, closure=None):
            called.append("noted")
            return step(self, closure)

        return call

    class Own(torch.optim.SGD):
        @noted
        def step(self, closure=None):
            called.append("step")

    ours = step_directly(Own([nn.Parameter(torch.ones(2))], lr=0.1))
    ours.step()
    assert type(ours) is Own and called == ["noted", "step"]


def test_hooks_run_once(absent):
    weight = nn.Parameter(torch.ones(2))
    ours = step_directly(torch.optim.AdamW([weight]))
    seen = []
    ours.register_step_pre_hook(lambda *_: seen.append("before"))
    ours.register_step_post_hook(lambda *_: seen.append("after"))
    ours.step()

    assert type(ours) is not torch.optim.AdamW
    assert seen == ["before", "after"]
    assert "torch._dynamo" not in sys.modules


def test_kernels_run_as_they_are_written_until_the_compiler_is_imported(absent, monkeypatch):
    call_kernels_directly()
    operator, x = torch._library.custom_ops.OPDEFS["tessera::softmax"], torch.randn(3, 4)
    expected = operator(x, "blocked", 2, 1)
    assert "torch._dynamo" not in sys.modules
    assert all(kernel.directly for kernel in operator._backend_fns.values())
    monkeypatch.undo()
    assert operator(x, "blocked", 2, 1).equal(expected)
