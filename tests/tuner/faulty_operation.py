"""An operation with every fault there is, for tests and benchmarks: loaded by its path, here and in the children."""

import os
import time
from functools import partial

import torch

from kernels.dispatch.registry import Implementation, Operation, Problem, register

LARGEST = 64


def reference(x, w):
    return x * w


def right(x, w, block=8):
    return x * w


def slow(x, w):
    time.sleep(0.02)
    return x * w


def wrong(x, w):
    return x * w * (1 + 1e-3)


def wrong_gradient(x, w):
    return x * w.detach() + (w - w.detach())


def unwritten(x, w):
    out = torch.empty_like(x)
    if torch.are_deterministic_algorithms_enabled():  # where the memory was zero by luck nothing is seen
        out[1:] = (x * w)[1:]
        return out
    return x * w


def changes_inputs(x, w):
    out = x * w
    x.data.mul_(2)
    return out


def changes_threads(x, w):
    torch.set_num_threads(torch.get_num_threads() + 1)
    return x * w


def crashes(x, w):
    os._exit(3)


def is_killed(x, w):
    os.kill(os.getpid(), 9)


def raises(x, w):
    raise RuntimeError("no such kernel")


def hangs(x, w):
    while True:
        time.sleep(0.01)


def out_of_memory(x, w):
    return x * torch.empty(2**60)


def without_gradients(x, w):
    return x.detach() * w.detach()


def too_large(problem):
    return f"has more than {LARGEST} rows" if problem["rows"] > LARGEST else None


def inputs(problem, seed):
    generator = torch.Generator().manual_seed(seed)
    draw = partial(torch.randn, generator=generator, requires_grad=problem["gradients"])
    return (draw(problem["rows"], 8), draw(8)), {}


def problem(rows, *, gradients=True):
    return Problem("faulty", "cpu", "float32", (("rows", rows),), (("gradients", gradients),))


FAULTS = {
    each.__name__: each
    for each in (
        *(wrong, wrong_gradient, unwritten, changes_inputs, changes_threads, crashes, is_killed, raises, hangs),
        *(out_of_memory, slow, without_gradients),
    )
}
IMPLEMENTATIONS = [
    Implementation(
        "right",
        right,
        parameters={"block": (4, 8, 16)},
        constraints=(lambda configuration, problem: configuration["block"] <= problem["rows"],),
        default={"block": 8},
    ),
    *(Implementation(name, call, gradients=name != "without_gradients") for name, call in FAULTS.items()),
    Implementation("small", right, refuses=too_large, default={"block": 8}, parameters={"block": (8,)}),
]
FAULTY = register(
    Operation(
        "faulty",
        reference,
        {each.name: each for each in IMPLEMENTATIONS},
        inputs,
        lambda device: {"few": problem(8), "many": problem(128)},
        lambda problem: "right",
        sizes=("rows",),
        flags=("gradients",),
    )
)
