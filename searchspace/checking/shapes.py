"""Shapes, building, gradients, state dicts, configurations."""

from __future__ import annotations

import math
import pickle
from dataclasses import MISSING, FrozenInstanceError, fields, is_dataclass, replace

import torch
from torch import Tensor

from searchspace.checking.cases import LENGTHS, LONG, Case, context, drawn
from searchspace.checking.contract import Check, always, ensure, once
from searchspace.testing import scalar_defaults

GIVEN = {"dim", "causal", "memory", "widens"}  # what a model hands down


def keeps_shape_and_dtype_at_any_length(case: Case) -> None:
    block = case.built()
    for dtype in (torch.float64, torch.float32):
        block = block.to(dtype)
        for length in LENGTHS if dtype == torch.float64 else (7,):  # the other checks of float32 have other lengths
            x = drawn(length, dtype)
            _keeps_shape_and_dtype(block(x, context(x)), x)


def _keeps_shape_and_dtype(y: Tensor, x: Tensor) -> None:
    ensure(
        (y.shape, y.dtype) == (x.shape, x.dtype), f"{tuple(x.shape)} of {x.dtype} became {tuple(y.shape)} of {y.dtype}"
    )
    ensure(y.isfinite().all(), f"outputs of {x.shape[1]} positions are not finite")


def builds_without_memory(case: Case) -> None:
    """So that parameters can be counted for models that would not fit into memory."""
    with torch.device("meta"):
        real = [name for name, value in case.configured.build().named_parameters() if not value.is_meta]
    ensure(not real, f"on the device `meta` these parameters take memory: {real}")


def gradients_reach_every_parameter_and_the_input(case: Case) -> None:
    """Here too the shape stays: of an input that is longer than those above."""
    # Long enough for what begins late, and with the losses of parameters that learn from nothing else.
    block, x = case.built(), drawn(LONG).requires_grad_()
    used = context(x)
    y = block(x, used)
    _keeps_shape_and_dtype(y, x)
    ((y * torch.randn_like(y)).sum() + used.loss()).backward()
    for name, value in (("x", x), *block.named_parameters()):
        ensure(value.grad is not None, f"{name} has no gradient")
        assert value.grad is not None
        ensure(value.grad.isfinite().all(), f"the gradient of {name} is not finite")
        ensure(value.grad.abs().max() > 0, f"the gradient of {name} is zero")


def a_state_dict_carries_everything(case: Case) -> None:
    first, second, x = case.built(), case.built(), drawn(7)
    second.load_state_dict(first.state_dict())
    ensure(second(x, context(x)).equal(first(x, context(x))), "a copy with the same state dict has other outputs")


def is_the_same_again_under_a_seed(case: Case) -> None:
    config, kind, x = case.configured.config, case.configured.type, drawn(7)
    if hasattr(config, "dropout"):
        config = replace(config, dropout=0.5)
    outs = []
    for _ in range(2):
        torch.default_generator.manual_seed(3)
        outs.append(kind.module(config).double().train()(x, context(x)))
    ensure(outs[0].equal(outs[1]), "two copies made under one seed have different outputs")
    if hasattr(config, "dropout"):
        quiet = kind.module(config).double().eval()
        ensure(quiet(x, context(x)).equal(quiet(x, context(x))), "dropout changes outputs in evaluation mode")
        ensure(not quiet.train()(x, context(x)).equal(quiet(x, context(x))), "dropout changes nothing in training")


def a_configuration_crosses_process_boundaries(case: Case) -> None:
    ensure(pickle.loads(pickle.dumps(case.config)) == case.config, "the configuration differs after pickle")


def a_configuration_is_frozen_and_every_field_in_yaml_has_a_scalar_default(case: Case) -> None:
    config, kind = case.config, case.kind
    ensure(is_dataclass(config), "the configuration is not a dataclass")
    try:
        config.dim = 8
    except FrozenInstanceError:
        pass
    else:
        raise AssertionError("the configuration is not frozen: @dataclass(frozen=True, kw_only=True)")
    for name, default in scalar_defaults(kind).items():
        ensure(default is not MISSING, f"{name} has no default")
        ensure(isinstance(default, bool | int | float | str | None), f"the default of {name} is no scalar: {default!r}")
        ensure(not isinstance(default, float) or math.isfinite(default), f"the default of {name} is not finite")
    ensure(kind.given <= GIVEN, f"a model hands down {sorted(GIVEN)} only, not {sorted(kind.given - GIVEN)}")
    ensure(all(field.kw_only for field in fields(config)), "fields are not keyword-only: @dataclass(kw_only=True)")


def _defaults(case: Case) -> bool:
    return case.defaults


CHECKS = (
    Check(keeps_shape_and_dtype_at_any_length, always),
    Check(builds_without_memory, _defaults),
    Check(gradients_reach_every_parameter_and_the_input, always),
    Check(a_state_dict_carries_everything, once),
    Check(is_the_same_again_under_a_seed, once),
    Check(a_configuration_crosses_process_boundaries, once),
    Check(a_configuration_is_frozen_and_every_field_in_yaml_has_a_scalar_default, _defaults),
)
