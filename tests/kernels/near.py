"""A fast form is near its definition: outputs, and gradients of a weighted sum of them."""

import torch


def agree(found, expected, inputs, tolerance=1e-10):
    """found, expected: a tensor or several. The outputs are near, and so are the gradients of the inputs."""
    both = [[outs] if torch.is_tensor(outs) else list(outs) for outs in (found, expected)]
    torch.testing.assert_close(*([y.double() for y in outs] for outs in both), atol=tolerance, rtol=tolerance)
    weights = [torch.randn_like(y) for y in both[0]]
    gradients = [
        torch.autograd.grad(
            sum((y * weight).sum() for y, weight in zip(outs, weights, strict=True)),
            inputs,
            materialize_grads=True,
            retain_graph=True,
        )
        for outs in both
    ]
    torch.testing.assert_close(*gradients, atol=4 * tolerance, rtol=4 * tolerance)
