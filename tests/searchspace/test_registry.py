"""The registry: it finds blocks by itself, has one class for each name and role, and explains unknown names."""

from dataclasses import dataclass

import pytest

from searchspace import registry
from searchspace.contract import Given, Primitive, given
from searchspace.errors import SpaceError
from searchspace.language import canonical, schema
from searchspace.model.architecture import Architecture
from searchspace.registry import block_type, block_types, configure, primitive
from searchspace.space.space import Space
from searchspace.space.spacediff import diff
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


def test_a_former_name_of_a_block_is_read_as_the_current_one():
    assert block_type("kernel_attention") is block_type("nadaraya_watson")
    written = "kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {NAME: {heads: 2}}\n"
    old, new = (Architecture.parse(written.replace("NAME", n)) for n in ("kernel_attention", "nadaraya_watson"))
    assert old == new and old.text() == new.text() and "nadaraya_watson" in old.text()
    assert old == Architecture.from_block(
        Block("decoder", {"width": 8, "vocabulary": 5, "body": (Block("kernel_attention", {"heads": 2}),)})
    )


def test_choices_recorded_under_the_former_name_of_a_block_still_make_the_same_point():
    written = "kind: decoder\nwidth: 8\nvocabulary: 5\nbody: !choice [{NAME: {heads: !choice [1, 2]}}, attention]\n"
    old, new = (Space.parse(written.replace("NAME", n)) for n in ("kernel_attention", "nadaraya_watson"))
    choices = {"body[0]": "kernel_attention", "body[0]?kernel_attention.heads": 2}
    assert old.point(choices) == new.point(choices)
    found = new.locate(new.point(choices).architecture)
    assert found is not None and found.choices == choices
    assert [*new.dimensions] == [*old.dimensions] == [*choices]
    assert diff(old, new).larger and not any((diff(old, new).added, diff(old, new).removed, diff(old, new).renamed))


@pytest.fixture
def renamed_option():
    """A block whose option `size` was called `extent`, and `width` before that."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        dim: int = given()
        size: int = 3

    module = primitive("resized", Config, former_options={"size": ["width", "extent"]})(
        type("Resized", (Primitive,), {})
    )
    yield module
    registry._types.pop(("block", "resized"))
    registry._recorded.pop("resized")
    registry._recorded_options.pop(("resized", "size"))
    registry._sorted.cache_clear()


def test_a_former_name_of_an_option_is_read_as_the_current_one(renamed_option):
    written = "kind: decoder\nwidth: 8\nvocabulary: 5\nbody: {resized: {NAME: !choice [4, 5]}}\n"
    spaces = [Space.parse(written.replace("NAME", name)) for name in ("size", "extent", "width")]
    assert len({space.text() for space in spaces}) == 1 and "resized: {size: !choice [4, 5]}" in spaces[0].text()
    point = spaces[0].point({"body[0].resized.width": 4})
    assert canonical.recorded(point.architecture.root.fields["body"]) == [{"resized": {"width": 4}}]
    assert Architecture.parse(point.architecture.text()) == point.architecture
    with pytest.raises(SpaceError, match="the option 'size' twice: 'width', 'extent' is its former name"):
        Space.parse(written.replace("NAME: !choice [4, 5]", "size: 4, extent: 5"))
    with pytest.raises(SpaceError, match="the option 'size' twice"):
        schema.complete(Block("resized", {"size": 4, "extent": 5}))


def test_a_former_name_may_not_belong_to_another_block():
    class Other:
        pass

    with pytest.raises(ValueError, match="Two of role 'block' are called 'attention'"):
        primitive("other_attention", object, former=["attention"])(Other)
    with pytest.raises(ValueError, match="exists in several roles"):
        primitive("none", object, role="model", former=["nothing"])(Other)
