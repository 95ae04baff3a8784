"""Reading pauses the garbage collector, repeats are checked once, and neither changes what is read."""

import copy
import gc

import pytest

from searchspace.contract import Given
from searchspace.errors import SpaceError
from searchspace.language import overlap
from searchspace.language.collecting import collected_later
from searchspace.registry import configure
from searchspace.space.space import Space
from searchspace.tree import Block, Choice, has_holes

MODEL = "kind: decoder\nwidth: 16\nvocabulary: 256\nbody: "


def test_the_collector_is_paused_and_goes_on_after_an_error_too():
    seen = []

    @collected_later()
    def read():
        seen.append(gc.isenabled())
        raise ValueError

    with pytest.raises(ValueError):
        read()
    with collected_later(), pytest.raises(SpaceError):
        Space.parse(MODEL + "[nothing]")
        seen.append(gc.isenabled())
    assert seen == [False] and gc.isenabled()


def test_a_wrong_block_is_reported_after_equal_names_that_are_right():
    with pytest.raises(SpaceError) as caught:
        Space.parse(MODEL + "[attention, attention, attention: {heads: 3}, attention: {heads: 3}, attention]")
    assert str(caught.value).count("must be a multiple of heads") == 2


def test_equal_blocks_are_configured_once_if_asked_for():
    made = {}
    root = copy.deepcopy(Space.parse(MODEL + "[attention, residual: {of: attention}, attention]").root)
    assert configure(root, made=made) == configure(root) and len([key for key in made if key[0] == "attention"]) == 1
    given = Given(dim=16, causal=False)
    assert configure(Block("attention", {}), given, made=made) == configure(Block("attention", {}), given)


def test_a_block_alone_has_the_key_of_a_list_of_it():
    block = Space.parse(MODEL + "[attention]").root.fields["body"][0]
    search = overlap.Search()
    assert search.key(block) == search.key((block,)) != search.key((block, block))


def test_a_block_knows_whether_it_has_holes():
    inner = Block("attention", {"heads": Choice((1, 2))})
    assert has_holes(inner) and has_holes(Block("residual", {"of": (inner,)})) and not has_holes(Block("gru", {}))
