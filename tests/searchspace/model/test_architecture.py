# ruff: noqa: E501 (each row of a table is one description and the expected message)
import importlib.util
import pickle
import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace import registry
from searchspace.errors import SpaceError
from searchspace.language import canonical, schema
from searchspace.model.architecture import Architecture, Difference, diff
from searchspace.tree import Block, Choice, Same

FOLDER = Path(__file__).parents[1]
HEAD = "kind: decoder\nwidth: 64\nvocabulary: 256\n"

specification = importlib.util.spec_from_file_location("golden_record", FOLDER / "golden" / "record.py")
golden = importlib.util.module_from_spec(specification)
specification.loader.exec_module(golden)


def architecture(body: str) -> Architecture:
    return Architecture.parse(f"{HEAD}body: {body}\n")


def decoder(*body: Block, **fields) -> Architecture:
    return Architecture.from_block(Block("decoder", {"width": 64, "vocabulary": 256, "body": body, **fields}))


@pytest.mark.parametrize("name", sorted(golden.recorded("hashes.json")))
def test_a_hash_never_changes(name):
    loaded = Architecture.load(FOLDER / "golden" / name)
    assert loaded.hash == golden.recorded("hashes.json")[name]


def test_every_golden_file_is_recorded():
    assert golden.hashes() == golden.recorded("hashes.json")


@pytest.mark.parametrize("block", sorted(golden.recorded("defaults.json")))
def test_a_declared_default_never_changes(block):
    recorded = golden.recorded("defaults.json")[block]
    assert {name: value for name, value in golden.defaults()[block].items() if name in recorded} == recorded


@pytest.mark.parametrize("block", sorted(golden.recorded("defaults.json")))
def test_a_field_that_is_new_to_a_recorded_block_has_a_default(block):
    new = golden.defaults()[block].keys() - golden.recorded("defaults.json")[block].keys()
    assert all(golden.defaults()[block][name] != golden.REQUIRED for name in new)


SPELLINGS = [
    ("attention", "[attention: {heads: 4, bias: false}]"),
    ("[attention, convolution]", "[sequence: [attention, sequence: [convolution]]]"),
    ("[attention, attention, attention]", "[repeat: {times: 3, of: attention}]"),
    ("[attention, convolution, attention, convolution]", "[repeat: {times: 2, of: [attention, sequence: convolution]}]"),
    ("attention", "[repeat: {times: 1, of: attention}]"),
    ("attention", "[repeat: {times: 1, share_weights: true, of: attention}]"),
    ("attention", "[sequence: [], attention]"),
    ("[residual: {of: [sequence: []]}]", "[residual: {of: [sequence: [], sequence: [sequence: []]]}]"),
    ("[residual: {of: [sequence: []]}]", "[residual: {of: [repeat: {times: 3, of: [sequence: []]}]}]"),
    ("[residual: [attention, convolution]]", "[residual: {of: [sequence: [attention, convolution]]}]"),
    ("[parallel: [[attention, convolution], feed_forward]]", "[parallel: [sequence: [attention, convolution], [feed_forward]]]"),
    ("[parallel: [[], attention]]", "[parallel: [sequence: [], attention]]"),
    ("[attention, attention, attention, attention]", "[repeat: {times: 2, of: {repeat: {times: 2, of: attention}}}]"),
    ("[residual: {dropout: 0, of: attention}]", "[residual: {dropout: -0.0, of: attention}]"),
    ("[residual: {norm: {rms_norm: {eps: 1}}, of: attention}]", "[residual: {norm: {rms_norm: {eps: 1.0}}, of: attention}]"),
]  # fmt: skip


@pytest.mark.parametrize(("one", "other"), SPELLINGS)
def test_two_spellings_of_a_model_are_one_architecture(one, other):
    first, second = architecture(one), architecture(other)
    assert first == second
    assert first.hash == second.hash
    assert hash(first) == hash(second)
    assert first.text() == second.text()
    assert schema.same(first.root, second.root)
    assert diff(first, second) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[attention, convolution]", "[convolution, attention]"),
        ("[attention, attention]", "[repeat: {times: 2, share_weights: true, of: attention}]"),
        ("attention", "[repeat: {times: 1, share_weights: true, signal: step, of: attention}]"),
        ("[residual: attention]", "[residual: {of: attention, order: post}]"),
        ("[parallel: [attention, convolution]]", "[parallel: [[attention, convolution]]]"),
        ("[halting: {times: 2, of: attention}]", "[repeat: {times: 2, share_weights: true, of: attention}]"),
    ],
)
def test_different_models_are_different(one, other):
    assert architecture(one) != architecture(other)
    assert architecture(one).hash != architecture(other).hash


@pytest.fixture
def registered(monkeypatch):
    """Registers a block for one test."""

    def register(kind: registry.BlockType) -> None:
        monkeypatch.setitem(registry._types, (kind.role, kind.name), kind)
        registry._sorted.cache_clear()

    yield register
    monkeypatch.undo()
    registry._sorted.cache_clear()


def test_a_new_field_with_a_neutral_default_changes_no_hash(registered):
    before = architecture("[attention: {heads: 2}]")
    kind = registry.block_type("attention")

    @dataclass(frozen=True, kw_only=True)
    class Wider(kind.config):
        temperature: float = field(default=1.0)

    registered(registry.BlockType("attention", Wider, kind.module, "block"))
    after = architecture("[attention: {heads: 2}]")
    assert after.root.fields["body"][0].fields["temperature"] == 1.0
    assert after.hash == before.hash
    assert architecture("[attention: {heads: 2, temperature: 2}]").hash != before.hash


def test_a_tree_made_by_a_program_is_completed():
    made = decoder(
        Block("attention", {"heads": 8}), Block("residual", {"dropout": 0, "of": (Block("convolution", {}),)})
    )
    assert made == architecture("[attention: {heads: 8}, residual: convolution]")


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (Block("attention", {"heads": Choice((2, 4))}), "body[0].attention.heads: An architecture has no holes, but found !choice."),
        (Choice((Block("attention", {}),)), "body[0]: An architecture has no holes"),
        (Block("residual", {"norm": Same("x"), "of": ()}), "body[0].residual.norm: An architecture has no holes, but found !same."),
        (Block("attention", {"heads": "many"}), "body[0].attention.heads: Expected a whole number, found the text 'many'."),
        (Block("attention", {"heads": True}), "Expected a whole number, found true."),
        (Block("attention", {"heds": 2}), "attention has no field 'heds'. Did you mean 'heads'?"),
        (Block("atention", {}), "No block is called 'atention'. Did you mean 'attention'?"),
        (Block("layer_norm", {}), "body: Expected blocks, found a list"),
        (Block("repeat", {"of": ()}), "repeat needs 'times', which has no default."),
    ],
)  # fmt: skip
def test_a_tree_that_is_no_architecture_is_refused(block, expected):
    with pytest.raises(SpaceError) as caught:
        decoder(block)
    assert expected in str(caught.value)


def test_only_a_model_is_an_architecture():
    with pytest.raises(
        SpaceError, match="Expected a model, one of decoder, encoder, encoder_decoder, found 'attention'"
    ):
        Architecture.from_block(Block("attention", {}))


def test_a_file_with_holes_is_a_space_and_says_where():
    with pytest.raises(SpaceError) as caught:
        architecture("\n  - attention: {heads: !choice [2, 4]}\n  - convolution: {kernel: !int [3, 5]}")
    assert [problem.mark.line for problem in caught.value.problems] == [5, 6]


def test_a_small_file_cannot_stand_for_a_huge_model():
    nested = "attention"
    for _ in range(8):
        nested = f"{{repeat: {{times: 100, of: {nested}}}}}"
    for body in (f"[{nested}]", "[repeat: {times: 1000000000, of: attention}]"):
        with pytest.raises(SpaceError, match="More than 20000 blocks with repeats expanded"):
            architecture(body)
    wide = ", ".join(["residual: {of: {repeat: {times: 15000, of: attention}}}"] * 50)
    with pytest.raises(SpaceError, match="More than 20000 blocks"):
        architecture(f"[{wide}]")
    with pytest.raises(SpaceError, match="More than 20000 blocks"):
        architecture(
            "[repeat: {times: 150, share_weights: true, of: {halting: {times: 2, of: {repeat: {times: 30000, of: attention}}}}}]"
        )


def test_values_that_do_not_fit_together_are_named_when_it_is_configured():
    made = decoder(Block("attention", {"heads": 7}))
    with pytest.raises(SpaceError, match="heads"):
        _ = made.configured
    assert decoder(Block("attention", {"heads": 8})).configured.type.name == "decoder"


def test_repeats_are_found_again_when_it_is_printed():
    layer = "residual: attention, residual: feed_forward"
    assert (
        architecture(f"[convolution, {layer}, {layer}, {layer}, convolution, convolution]").text()
        == """\
kind: decoder
width: 64
vocabulary: 256
body:
  - convolution
  - repeat:
      times: 3
      of:
        - residual: attention
        - residual: feed_forward
  - repeat: {times: 2, of: convolution}
"""
    )


def test_a_copy_in_another_process_is_equal():
    made = architecture("attention")
    assert made.hash == pickle.loads(pickle.dumps(made)).hash
    assert made.short == made.hash[:12]
    assert made.short in repr(made)


def words(*letters: str) -> tuple[Block, ...]:
    kinds = {"a": "attention", "b": "convolution", "c": "feed_forward"}
    return tuple(schema.complete(Block(kinds[letter], {})) for letter in letters)


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=30))
@settings(max_examples=150, deadline=None)
def test_printing_loses_nothing_and_is_one_to_one(letters):
    made = decoder(*words(*letters))
    assert [block.name for block in made.root.fields["body"]] == [block.name for block in words(*letters)]
    again = Architecture.parse(made.text())
    assert again == made
    assert again.text() == made.text()
    assert schema.same(canonical.canonical(made.compressed), made.root)


def respelled(blocks: tuple[Block, ...], luck: random.Random) -> tuple[Block, ...]:
    """The same blocks, with random sequences, repeats of one step and folded copies."""
    spelled: list[Block] = []
    rest = list(blocks)
    while rest:
        count = luck.randint(1, len(rest))
        part, rest = tuple(rest[:count]), rest[count:]
        if luck.random() < 0.3:
            part = respelled(part, luck)
        match luck.randrange(4):
            case 0:
                part = (Block("sequence", {"of": part}),)
            case 1:
                part = (Block("repeat", {"times": 1, "share_weights": luck.random() < 0.5, "of": part}),)
            case 2 if len(part) > 1 and all(block == part[0] for block in part):
                part = (Block("repeat", {"times": len(part), "of": part[:1]}),)
        spelled += part
    return tuple(spelled)


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=12), st.integers(0, 2**32))
@settings(max_examples=150, deadline=None)
def test_however_it_is_spelled_the_hash_is_the_same(letters, seed):
    blocks = words(*letters)
    assert decoder(*respelled(blocks, random.Random(seed))).hash == decoder(*blocks).hash


def test_the_hash_needs_no_order_of_fields():
    one = Block("attention", {"heads": 8, "bias": True})
    other = Block("attention", {"bias": True, "heads": 8})
    assert decoder(one) == decoder(other)


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("[attention: {heads: 2}]", "[attention: {heads: 8}]", ["  body[0].attention.heads: 2 -> 8"]),
        ("[attention]", "[convolution]", ['  body[0].attention: {"attention": {}} -> {"convolution": {}}']),
        ("[attention, convolution]", "[attention]", ['- body[1].convolution: {"convolution": {}}']),
        ("[attention, feed_forward]", "[attention, convolution: {kernel: 5}, feed_forward]",
         ['+ body[1].convolution: {"convolution": {"kernel": 5}}']),
        ("[repeat: {times: 2, of: [attention, feed_forward]}]", "[repeat: {times: 6, of: [attention, feed_forward: {expand: 2}]}]",
         ["  body[0].repeat.times: 2 -> 6", "  body[0].repeat.of[1].feed_forward.expand: 4 -> 2"]),
        ("[residual: {norm: rms_norm, of: attention}]", "[residual: {norm: {rms_norm: {eps: 0.5}}, of: attention}]",
         ["  body[0].residual.norm.eps: 1e-06 -> 0.5"]),
        ("[residual: {norm: rms_norm, of: attention}]", "[residual: attention]",
         ['  body[0].residual.norm: {"rms_norm": {}} -> {"layer_norm": {}}']),
        ("[parallel: [attention, convolution]]", "[parallel: [attention, [convolution, feed_forward]]]",
         ['+ body[0].parallel.of[1][1].feed_forward: {"feed_forward": {}}']),
        ("[attention: {key_value_heads: 2}]", "[attention]", ["  body[0].attention.key_value_heads: 2 -> null"]),
    ],
)  # fmt: skip
def test_a_diff_names_what_changed(one, other, expected):
    assert [str(difference) for difference in diff(architecture(one), architecture(other))] == expected


def test_a_difference_carries_the_values():
    [difference] = diff(architecture("[attention: {heads: 2}]"), architecture("[attention: {heads: 8}]"))
    assert difference == Difference("body[0].attention.heads", 2, 8)


@given(*(st.lists(st.sampled_from("abc"), max_size=8) for _ in range(2)))
@settings(max_examples=100, deadline=None)
def test_there_is_a_diff_just_when_they_differ(first, second):
    one, other = decoder(*words(*first)), decoder(*words(*second))
    assert bool(diff(one, other)) == (one != other) == bool(diff(other, one))
