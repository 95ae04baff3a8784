"""Architectures of one space share their equal blocks, and what is kept with a block changes nothing."""

import copy
import pickle
import random

import pytest

from searchspace.language import canonical, schema
from searchspace.language.traversal import MAX_FILLED
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space

LAYERS = """
kind: decoder
width: 16
vocabulary: 256
body:
  - residual: {of: {feed_forward: {expand: !int [1, 1000000]}}}
  - repeat: {times: 2, of: {residual: {norm: !choice [layer_norm, rms_norm], of: gru}}}
"""


def filled(space, expand, norm="layer_norm"):
    chosen = {"expand": expand, "norm": norm}
    return space.realise(lambda path, _: chosen[path.rpartition(".")[2]]).architecture


def test_equal_layers_are_one_object():
    space = Space.parse(LAYERS)
    first, second = filled(space, 2).root.fields["body"], filled(space, 2, "rms_norm").root.fields["body"]
    assert first[0] is second[0] and first[1] is first[2] is not second[1]
    assert filled(space, 1).root.fields["body"][0] != first[0]


def test_equal_numbers_of_different_types_are_different_fields():
    space = Space.parse(LAYERS)
    values = [space.outline.filled(space.root, {"dropout": value}).fields["dropout"] for value in (1, 1.0, True, 1)]
    assert list(map(type, values)) == [int, float, bool, int]


def test_no_more_than_a_limit_is_kept_and_shared_blocks_stay_right():
    space = Space.parse(LAYERS)
    for expand in range(1, MAX_FILLED + 10):
        space.outline.filled(space.root, {"width": expand})
    assert len(space.outline._filled) <= MAX_FILLED
    assert "expand: 7" in filled(space, 7).text() and "expand: 8" in filled(space, 8).text()


@pytest.mark.parametrize("remade", [copy.deepcopy, lambda space: pickle.loads(pickle.dumps(space))])
def test_a_copied_space_gives_the_same_architectures(remade):
    space = Space.parse(LAYERS)
    before = [filled(space, n) for n in range(1, 20)]
    again = remade(space)
    assert [filled(again, n) for n in range(1, 20)] == before
    assert not again.outline._filled.keys() & space.outline._filled.keys()


def test_what_is_kept_with_blocks_is_what_a_new_tree_gives(random_space):
    compared = 0
    for seed in range(60):
        space = random_space(random.Random(seed), 10**6)
        for draw in range(3 if space else 0):
            shared = space.sample(random.Random(draw), feasible=False).architecture
            shared.text(), shared.hash, shared.compressed  # kept with its blocks from now on
            fresh = Architecture(copy.deepcopy(shared.root))
            assert shared.hash == fresh.hash and shared.text() == fresh.text()
            assert canonical.canonical(shared.root) == shared.root == canonical.canonical(fresh.root)
            assert schema.written(shared.root) == schema.written(fresh.root)
            compared += 1
    assert compared > 60


class Forgetful(dict):
    """What another thread may do at any time: everything is forgotten as soon as it is kept."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        self.clear()


def test_another_thread_may_forget_what_is_kept():
    space = Space.parse(LAYERS)
    before = filled(space, 3)
    space.outline._filled = Forgetful()
    assert filled(space, 3) == before


def test_an_architecture_cannot_be_changed_and_with_it_the_others_of_its_space():
    space = Space.parse(LAYERS)
    first, second = filled(space, 2), filled(space, 2, "rms_norm")
    with pytest.raises(TypeError, match="does not support item assignment"):
        first.root.fields["body"][0].fields["of"] = ()
    for block in (space.root, first.root, copy.deepcopy(first.root), pickle.loads(pickle.dumps(first.root))):
        with pytest.raises(TypeError):
            block.fields["width"] = 32
    assert second.text() == filled(Space.parse(LAYERS), 2, "rms_norm").text()
