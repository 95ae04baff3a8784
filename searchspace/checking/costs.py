"""Declared costs against measured ones."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from searchspace.checking.cases import B, Case, S, context, drawn
from searchspace.checking.contract import Check, always, ensure
from searchspace.cost import Shape
from searchspace.testing import count_flops, kept_bytes, peak_bytes

NEAR = 0.25  # of the bytes that autograd keeps
SHORT, LONG = 256, 1024


def declared_parameters_and_flops_are_those_of_the_built_module(case: Case) -> None:
    block = case.built(torch.float32)
    has = sum(parameter.numel() for parameter in block.parameters())
    for length in (1, 7, 131):
        x = drawn(length, torch.float32).requires_grad_()
        used = context(x)
        used.read("memory").requires_grad_()
        cost = case.configured.cost(Shape(batch=B, length=length, memory=S))
        ensure(cost.parameters == has, f"{cost.parameters} parameters declared, the module has {has}")

        def call() -> torch.Tensor:
            fresh = replace(used, losses={}, lanes=dict(used.lanes))  # noqa: B023
            # A product of its own, so that a block which returns its input has a backward pass too.
            return block(x, fresh).sum() * 1.0 + fresh.loss()  # noqa: B023

        counted, declared = count_flops(call), (cost.flops, cost.training_flops)
        ensure(
            declared == counted,
            f"at length {length} FLOPs declared (forward, training) {declared}, counted {counted}",
        )
        ensure(cost.expected_flops == cost.flops, "expected_flops differs from flops")


def declared_activations_are_within_a_quarter_of_what_autograd_keeps(case: Case) -> None:
    block = case.built(torch.float32)
    for length in (1, 20, 131):
        x = drawn(length, torch.float32).requires_grad_()
        used = context(x)
        used.read("memory").requires_grad_()
        kept = kept_bytes(lambda: block(x, used), block.parameters())  # noqa: B023
        declared = case.configured.cost(Shape(batch=B, length=length, memory=S)).activation_bytes
        ensure(abs(declared - kept) <= NEAR * kept, f"at length {length} {declared} bytes declared, {kept} kept")


def memory_grows_no_faster_than_the_declared_work(case: Case) -> None:
    """What needs four times the work for four times the length has no hidden matrix of all pairs."""
    configured = case.configured
    if hasattr(configured.config, "length"):
        configured = replace(configured, config=replace(configured.config, length=LONG))
    flops = [configured.cost(Shape(batch=B, length=length, memory=S)).flops for length in (SHORT, LONG)]
    if flops[1] > 8 * flops[0]:
        return
    block, peaks = configured.build().eval(), []
    for length in (SHORT, LONG):
        x = drawn(length, torch.float32).requires_grad_()
        used = context(x)
        peaks.append(peak_bytes(lambda: block(x, used).sum().backward()))  # noqa: B023
    n_log_n = LONG / SHORT * math.log(LONG) / math.log(SHORT)
    ensure(
        peaks[1] <= n_log_n * peaks[0],
        f"{LONG // SHORT} times the length needs {peaks[1] / peaks[0]:.1f} times the memory",
    )


def _defaults(case: Case) -> bool:
    return case.defaults


CHECKS = (
    Check(declared_parameters_and_flops_are_those_of_the_built_module, always),
    Check(declared_activations_are_within_a_quarter_of_what_autograd_keeps, always),
    Check(memory_grows_no_faster_than_the_declared_work, _defaults),
)
