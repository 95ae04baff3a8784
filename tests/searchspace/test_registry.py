"""The registry: it finds blocks by itself, has one class for each name and role, and explains unknown names."""

from dataclasses import dataclass

import pytest

from searchspace.contract import Given
from searchspace.errors import SpaceError
from searchspace.registry import block_type, block_types, configure, primitive
from searchspace.tree import Block


def test_finds_every_module_by_itself():
    assert {"attention", "convolution", "feed_forward"} <= block_types("block").keys()
    assert {"layer_norm", "rms_norm", "none"} <= block_types("norm").keys()
    assert {"rotary", "sinusoidal", "learned", "alibi", "none"} <= block_types("position").keys()


def test_a_name_may_stand_once_in_each_role():
    assert block_type("none", "norm").module is not block_type("none", "position").module
    assert configure(Block("none", {}), Given(dim=8), "norm").type.role == "norm"
    assert configure(Block("none", {}), Given(dim=8), "position").type.role == "position"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        pass

    class Other:
        pass

    with pytest.raises(ValueError, match="Two of role 'norm' are called 'none'"):
        primitive("none", Config, role="norm")(Other)


def test_an_unknown_name_is_answered_with_the_nearest_of_its_role():
    with pytest.raises(SpaceError, match=r"No block is called 'atention'\. Did you mean 'attention'"):
        block_type("atention")
    with pytest.raises(SpaceError, match="No norm is called 'rotary'") as caught:
        block_type("rotary", "norm")
    assert "Known: layer_norm, none, rms_norm." in str(caught.value)
