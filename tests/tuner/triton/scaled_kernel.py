"""A kernel of a user, a clock that only pretends to measure it, and how the tests call it."""

from dataclasses import replace

import pytest
import torch

import tuner
from tuner.search.effort import EFFORTS
from tuner.search.results import STORAGE
from tuner.triton.kernel import SWITCH

triton = pytest.importorskip("triton")
tl = pytest.importorskip("triton.language")

OFFSET = tl.constexpr(0)


@triton.jit
def scale(x_ptr, y_ptr, size, factor, BLOCK: tl.constexpr, FAULT: tl.constexpr = "none"):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    if FAULT == "wrong":
        factor = factor * 2
    if FAULT == "endless":
        while size > 0:
            factor = factor + 1
    tl.store(y_ptr + places, twice(tl.load(x_ptr + places, mask=inside)) * factor + OFFSET, mask=inside)


@triton.jit
def twice(x):
    return x * 2


@triton.jit
def add_into(x_ptr, y_ptr, size, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    tl.store(y_ptr + places, tl.load(y_ptr + places, mask=inside) + tl.load(x_ptr + places, mask=inside), mask=inside)


@triton.jit
def apply(x_ptr, y_ptr, size, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    tl.store(y_ptr + places, FUNCTION(tl.load(x_ptr + places, mask=inside)), mask=inside)


@triton.jit
def apply_all(x_ptr, y_ptr, size, FUNCTION: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < size
    tl.store(y_ptr + places, FUNCTION[0](tl.load(x_ptr + places, mask=inside)), mask=inside)


@triton.jit
def thrice(x):
    return x * 3


SPEED = {16: 3.0, 32: 1.0, 64: 2.0, 128: 5.0}
BLOCKS = list(SPEED)


class Pretended:
    """A clock that runs the call, and tells the time of the block it was launched with, as the kernel's grid is."""

    def __init__(self, speed=SPEED, size=40, noise=lambda number: 1 + 0.01 * (number % 3)):
        self.speed, self.size, self.noise, self.calls = dict(speed), size, noise, []

    def now(self):
        return 0.0

    def time(self, call):
        call()
        self.calls.append(LAUNCHED[-1])
        return self.speed[LAUNCHED[-1]] * self.noise(len(self.calls))


LAUNCHED = []
ARGUMENTS = torch.zeros(1), torch.zeros(1), 16, 1.5


def grid(meta):
    LAUNCHED.append(meta["BLOCK"])
    return (triton.cdiv(meta["size"], meta["BLOCK"]),)


@pytest.fixture(autouse=True)
def allowed(monkeypatch):
    """Tuning is allowed, and short."""
    monkeypatch.setenv(SWITCH, "on")
    monkeypatch.delenv(STORAGE, raising=False)
    for name, each in EFFORTS.items():  # the interpreter is slow, and the noise here is small
        monkeypatch.setitem(EFFORTS, name, replace(each, repeats=3, rounds=5))
    LAUNCHED.clear()


def tuned(tmp_path, kernel=None, clock=None, **options):
    given = {"space": {"BLOCK": BLOCKS}, "key": ["size"], "store": tmp_path / "kernels", **options}
    if "configs" in given:
        del given["space"]
    if "do_bench" not in given:
        given["clock"] = clock or Pretended()
    return tuner.tune(**given)(kernel or scale)


def call(kernel, size=16, factor=1.5, **options):
    x, y = torch.arange(float(size)), torch.full((size,), -1.0)
    kernel[grid](x, y, size, factor, **options)
    torch.testing.assert_close(y, x * 2 * factor)
    return y
