"""An operation of the user's own, loaded with `--load`: y = x * w for rows x."""

import torch

from kernels import tuned
from kernels.registry import Choice, Implementation, Operation, Problem, register


def scaled_reference(x, w):
    return x * w


def _whole(x, w):
    return x * w


def _parts(x, w, *, rows):
    return torch.cat([part * w for part in x.split(rows)])


def scaled(x, w, *, config: Choice | None = None):
    """x: [N, C], w: [C]. Without `config`: what is tuned for this problem."""
    problem = OPERATION.problem(x.device.type, str(x.dtype).removeprefix("torch."), tuple(x.shape), (x.requires_grad,))
    return tuned.launch(OPERATION, problem, config, x, w)


def _inputs(problem, seed):
    generator = torch.Generator().manual_seed(seed)
    rows, columns, learns = problem["rows"], problem["columns"], problem["gradients"]
    return tuple(torch.randn(size, generator=generator, requires_grad=learns) for size in ((rows, columns), columns)), {}


def _problems(device):
    return {"few": Problem("kept_scaled", device, "float32", (("rows", 8), ("columns", 16)), (("gradients", False),))}


OPERATION = register(
    Operation(
        name="kept_scaled",
        reference=scaled_reference,
        implementations={
            "whole": Implementation("whole", _whole),
            "parts": Implementation("parts", _parts, {"rows": (1, 2, 4, 8, 16)}, default={"rows": 4}),
        },
        inputs=_inputs,
        problems=_problems,
        default=lambda problem: "parts",
        sizes=("rows", "columns"),
        flags=("gradients",),
    )
)
