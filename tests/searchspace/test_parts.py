"""What a block of this library costs is kept; what one of the user's own costs is computed each time."""

from dataclasses import dataclass, field

import pytest

from nas.objectives.contract import cost_of
from searchspace import zoo
from searchspace.contract import Primitive, given
from searchspace.cost import Cost, Shape, total
from searchspace.model.architecture import Architecture
from searchspace.parts import Part, too_long
from searchspace.registry import Configured, block_types, forget, primitive

SHAPE = Shape(length=8)
FACTOR = {"now": 1}


@dataclass  # not frozen, so it has no hash
class Config:
    dim: int = given()
    number: int | bool = 1
    hidden: int = field(default=0, compare=False)
    longest: int = 4

    def __post_init__(self) -> None:
        self.rates = [1]


def define(factor: int = 1) -> None:
    """Define the block once more, as a notebook does whose cell is run again."""

    class Own(Primitive):
        @classmethod
        def cost(cls, config: Config, shape: Shape) -> Cost:
            worth = 50 if config.number is True else config.number
            return Cost(parameters=factor * FACTOR["now"] * (worth + config.hidden * config.rates[0]))

    primitive("own_block", Config)(Own)


@pytest.fixture(autouse=True)
def defined():
    define()
    yield
    forget(__name__)
    assert "own_block" not in block_types("block")


def architecture(options: str) -> Architecture:
    body = f"[{{residual: {{of: [{{own_block: {{{options}}}}}]}}}}]"
    return Architecture.parse(f"kind: decoder\nwidth: 8\nvocabulary: 5\nposition: none\nbody: {body}\n")


def parameters(options: str) -> int:
    found = architecture(options)
    return cost_of(found, SHAPE).parameters - cost_of(architecture("number: 0"), SHAPE).parameters


def test_options_that_python_calls_equal_cost_what_they_cost():
    assert [parameters(options) for options in ("number: 1", "number: true", "hidden: 2", "hidden: 3")] == [1, 50, 3, 4]


def test_a_cost_follows_a_global_and_the_newest_definition(monkeypatch):
    assert parameters("number: 3") == 3
    monkeypatch.setitem(FACTOR, "now", 7)
    assert parameters("number: 3") == 21
    define(factor=2)
    assert parameters("number: 3") == 42


def test_only_architectures_without_a_block_of_the_users_own_are_ours():
    assert not architecture("number: 1").configured.is_ours
    assert Architecture.parse("kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {attention: {}}\n").configured.is_ours


def test_a_block_without_a_hash_may_be_too_long():
    block: Configured = architecture("number: 1").configured
    found = too_long(Part(name="model", shape=SHAPE, block=block))
    assert found == "own_block supports at most 4 positions, but would read 8."


@pytest.mark.parametrize("name", zoo.names())
def test_the_cost_of_a_part_is_the_sum_of_its_leaves(name):
    def check(part):
        assert part.cost() == total(cost for _, cost in part.leaves())
        for below in part.below():
            check(below)

    check(Part(name="", shape=Shape(length=64), block=zoo.load(name, "tiny").configured))
