"""How a block is compared with a plain form of its formula."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from searchspace.contract import Context, Primitive


@pytest.fixture
def agrees() -> Callable[..., None]:
    """`agrees(block, plain, x, context)`: outputs and all gradients of `block` are those of `plain(x)` to 1e-9.

    Where x is padded only real positions are compared, because nothing is promised about the others.
    """

    def check(block: Primitive, plain: Callable[[Tensor], Tensor], x: Tensor, context: Context | None = None) -> None:
        context = Context() if context is None else context
        inputs = [x.requires_grad_(), *block.parameters()]
        if context.get("memory") is not None:
            inputs.append(context.read("memory").requires_grad_())
        weights = torch.randn_like(x)
        if context.padding is not None:
            weights = weights * context.padding[:, :, None]
        found, expected = block(x, context) * (weights != 0), plain(x) * (weights != 0)
        torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)
        gradients = torch.autograd.grad((found * weights).sum(), inputs)
        wanted = torch.autograd.grad((expected * weights).sum(), inputs, materialize_grads=True)
        for gradient, want in zip(gradients, wanted, strict=True):
            torch.testing.assert_close(gradient, want, atol=1e-9, rtol=1e-9)

    torch.default_generator.manual_seed(0)
    return check
