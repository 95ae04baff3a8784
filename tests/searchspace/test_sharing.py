"""Blocks of one model share parameters with the same key; a block outside of a model shares nothing."""

import torch
from torch import nn

from searchspace.cost import Cost, common, total
from searchspace.model.architecture import Architecture
from searchspace.sharing import numbered, one_model, shared


def _make() -> nn.Parameter:
    return nn.Parameter(torch.zeros(3))


def test_blocks_of_one_model_share_a_parameter_and_those_of_two_do_not():
    with one_model():
        first, second, other = shared("a", _make), shared("a", _make), shared("b", _make)
    with one_model():
        third = shared("a", _make)
    assert first is second
    alone = [shared("a", _make), shared("a", _make)]
    assert len({id(each) for each in (first, other, third, *alone)}) == 5


def test_a_model_within_a_model_shares_nothing_with_it():
    with one_model():
        outer = shared("a", _make)
        with one_model():
            assert shared("a", _make) is not outer
        assert shared("a", _make) is outer


def test_blocks_of_a_kind_are_numbered_in_each_model():
    for _ in range(2):
        with one_model():
            assert [numbered("random"), numbered("random"), numbered("other"), numbered("random")] == [0, 1, 0, 2]
    assert [numbered("random"), numbered("random")] == [0, 0]


def test_common_parameters_count_once_however_they_are_added():
    block = Cost(parameters=5, flops=7) + common("table", 100)
    assert (block + block).parameters == 110
    assert block.times(3).parameters == 115
    assert block.times(3, shared=True).parameters == 105
    assert (block.times(3) + block.times(2, shared=True) + common("other", 1)).parameters == 121
    assert total([block.times(2), block]).parameters == total([block, block, block]).parameters == 115
    assert block.times(3).flops == 21


def test_a_repeated_build_of_an_architecture_shares_nothing_between_its_models():
    text = "kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {attention: {heads: 2}}\n"
    configured = Architecture.parse(text).configured
    first, second = configured.build(), configured.build()
    assert not {id(p) for p in first.parameters()} & {id(p) for p in second.parameters()}
