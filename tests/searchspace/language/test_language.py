# ruff: noqa: E501 (each row of a table is one description and what is said of it)
from dataclasses import replace
from functools import cache
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace import registry
from searchspace.errors import SpaceError
from searchspace.language import documents, fitting, language, references, schema
from searchspace.language.language import Constraint, Description, from_data, load, parse, render
from searchspace.tree import Block, Choice, Floats, Integers, Same

HEAD = "kind: decoder\nwidth: 64\nvocabulary: 256\n"


def body(text: str) -> tuple:
    """The tree of a model's body, written in flow style or indented."""
    return parse(f"{HEAD}body: {text}\n").root.fields["body"]


def problems(text: str) -> list[str]:
    with pytest.raises(SpaceError) as caught:
        parse(text, "f.yaml")
    return [str(problem) for problem in caught.value.problems]


def only_problem(text: str) -> str:
    """The only problem of a body, without its place."""
    [problem] = problems(f"{HEAD}body: {text}\n")
    return problem


def block(name: str, **fields) -> Block:
    return schema.complete(Block(name, fields))


def test_fills_in_every_default():
    root = parse(HEAD + "body: []").root
    assert root.name == "decoder"
    assert list(root.fields) == list(registry.block_type("decoder", "model").fields)
    assert root.fields["final_norm"] == block("layer_norm")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("attention", "[attention]"),
        ("attention", "[attention: ]"),
        ("attention", "[attention: {}]"),
        ("attention", "[attention: {heads: 4, bias: false, key_value_heads: null}]"),
        ("[sequence: [attention, feed_forward]]", "[sequence: {of: [attention, feed_forward]}]"),
        ("[sequence: attention]", "[sequence: {of: attention}]"),
        ("[residual: attention]", "[residual: {norm: layer_norm, of: [attention]}]"),
        (
            "[parallel: [attention, [convolution, feed_forward]]]",
            "[parallel: {of: [[attention], [convolution, feed_forward]]}]",
        ),
        ("[residual: {dropout: 0, of: attention}]", "[residual: {dropout: 0.0, of: attention}]"),
        (
            "[residual: {norm: {layer_norm: {eps: 1e-5}}, of: attention}]",
            "[residual: {norm: layer_norm, of: attention}]",
        ),
        ("!choice [attention, [convolution]]", "[!choice [attention, convolution]]"),
        ("!choice {options: [attention, convolution]}", "!choice [attention, convolution]"),
        (
            "[convolution: {kernel: !int [3, 9]}]",
            "[convolution: {kernel: !int {low: 3, high: 9, step: 1, log: false}}]",
        ),
        ("[residual: !choice [attention, convolution]]", "[residual: {of: !choice [attention, convolution]}]"),
    ],
)
def test_two_spellings_give_equal_trees(one, other):
    assert body(one) == body(other)


def test_one_field_stands_for_the_block():
    assert parse(HEAD + "body: []\nposition: {learned: 512}").root.fields["position"] == block("learned", length=512)


def test_a_choice_among_blocks_is_an_item_whose_options_are_blocks_or_tuples():
    [choice] = body("!choice [attention, [convolution, feed_forward], [], !choice {options: [attention: {heads: 2}]}]")
    attention, convolution, feed_forward = block("attention"), block("convolution"), block("feed_forward")
    inner = Choice((block("attention", heads=2),))
    assert choice == Choice((attention, (convolution, feed_forward), (), (inner,)))


def test_reads_every_kind_of_hole():
    text = """
      - repeat:
          times: !int {low: 2, high: 8, step: 2, name: depth}
          of:
            - residual:
                norm: !choice [layer_norm, {rms_norm: {eps: !float {low: 1e-8, high: 1, log: true}}}]
                dropout: !float {low: 0, high: 0.5, step: 0.1}
                of: {attention: {heads: !choice {options: [2, 4], name: heads, each: true}, bias: !choice [true, false]}}
            - linear_attention: {heads: !same heads}
    """
    [repeat] = body(text)
    assert repeat.fields["times"] == Integers(2, 8, 2, name="depth")
    residual, linear = repeat.fields["of"]
    assert residual.fields["dropout"] == Floats(0.0, 0.5, 0.1)
    norm = residual.fields["norm"]
    assert norm.options[1].fields["eps"] == Floats(1e-8, 1.0, log=True)
    assert residual.fields["of"][0].fields["heads"] == Choice((2, 4), "heads", each=True)
    assert linear.fields["heads"] == Same("heads")
    assert repeat.mark.line == 5
    assert norm.mark.line == 9


def test_constraints_are_bounds():
    text = HEAD + "body: attention\nconstraints: {parameters: {min: 1k, max: 5M}, state_bytes_per_token: 2KiB}"
    assert parse(text).constraints == (
        Constraint("parameters", 1000, 5_000_000),
        Constraint("state_bytes_per_token", None, 2048),
    )


def test_a_space_within_a_search_file_keeps_its_lines():
    text = "study: x\nspace:\n  kind: decoder\n  width: 64\n  vocabulary: 256\n  body:\n    - atention\n"
    document = documents.parse(text, "search.yaml", language.TAGS)
    with pytest.raises(SpaceError) as caught:
        from_data(document, ("space",))
    assert str(caught.value).startswith(
        "search.yaml:7: space.body[0]: No block is called 'atention'. Did you mean 'attention'?"
    )


def test_plain_data_needs_no_file():
    data = {
        "kind": "decoder",
        "width": documents.Tagged("!choice", [64, 128]),
        "vocabulary": 256,
        "body": ["attention"],
    }
    assert from_data(data).root.fields["width"] == Choice((64, 128))


def test_loads_a_file(tmp_path):
    (tmp_path / "a.yaml").write_text(HEAD + "body: attention")
    assert load(tmp_path / "a.yaml").root.fields["body"] == (block("attention"),)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f.yaml:1: The file is empty"),
        ("[]", "Expected a model, `kind: NAME` with its fields, found an empty list."),
        ("width: 4", "A model needs `kind`: one of decoder, encoder, encoder_decoder"),
        (
            "kind: decoded",
            "f.yaml:1: kind: Expected a model, one of decoder, encoder, encoder_decoder, found the text 'decoded'. Did you mean 'decoder'?",
        ),
        ("kind: !choice [decoder, encoder]", "found !choice"),
        ("kind: [decoder]", "found a list"),
    ],
)
def test_a_file_is_one_model(text, expected):
    [problem] = problems(text)
    assert expected in problem


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[{atention: {heads: 4}}]", "f.yaml:4: body[0].atention: No block is called 'atention'. Did you mean 'attention'? Known:"),
        ("[layer_norm]", "body[0]: Expected a block, but layer_norm is a norm."),
        ("[attention: {heds: 4}]", "body[0].attention.heds: attention has no field 'heds'. Did you mean 'heads'? Known: heads,"),
        ("[attention: {dim: 4}]", "body[0].attention.dim: 'dim' of attention is set by the surrounding model; remove it."),
        ("[attention: {heads: four}]", "body[0].attention.heads: Expected a whole number, found the text 'four'."),
        ("[attention: {heads: true}]", "Expected a whole number, found true."),
        ("[attention: {heads: 4.0}]", "Expected a whole number, found 4.0. Write 4."),
        ("[attention: {bias: no}]", "Expected true or false, found the text 'no'. Write false."),
        ("[attention: {bias: On}]", "found the text 'On'. Write true."),
        ("[attention: {heads: null}]", "Expected a whole number, found nothing (null)."),
        ("[attention: {key_value_heads: x}]", "Expected a whole number or null, found the text 'x'."),
        ("[attention: 4]", "Expected the fields of attention (heads, key_value_heads,"),
        ("[residual: {dropout: .nan, of: attention}]", "Expected a finite number, found nan."),
        ("[residual: {dropout: 1e400, of: attention}]", "Expected a finite number, found inf."),
        ("[residual: {order: prenorm, of: attention}]", "Expected one of 'pre', 'post', 'stream', found the text 'prenorm'. Did you mean 'pre'?"),
        ("[residual: {norm: attention, of: attention}]", "body[0].residual.norm: Expected a norm, but attention is a block. Known: layer_norm,"),
        ("[residual: {norm: [layer_norm], of: attention}]", "Expected a norm, found a list."),
        ("[residual: {norm: layer_norm}]", "body[0].residual: residual needs 'of' (blocks)."),
        ("[[attention]]", "body[0]: Expected a block, found a list within a list."),
        ("[7]", "body[0]: Expected a block, found 7."),
        ("[null]", "Expected a block, found nothing (null)."),
        ("[{attention: , heads: 4}]", "Should the lines after 'attention' be indented further?"),
        ("[parallel: {of: !choice [attention]}]", "Put the hole into a branch"),
        ("[sequence: {off: [attention]}]", "sequence has no field 'off'. Did you mean 'of'?"),
        ("!int [2, 4]", "body: Expected blocks, found !int."),
        ("!same 5", "Expected !same NAME, the name of another hole, found 5."),
        ("[attention: {heads: !choice []}]", "Expected a list of options, found an empty list."),
        ("[attention: {heads: !choice 4}]", "Expected !choice [option, option] or a mapping, found 4."),
        ("[attention: {heads: !choice {option: [2, 4]}}]", "Did you mean 'options'?"),
        ("[attention: {heads: !choice [2, x]}]", "body[0].attention.heads[1]: Expected a whole number, found the text 'x'."),
        ("[attention: {heads: !int [2, 4, 8]}]", "Expected !int [low, high], found a list of 3."),
        ("[attention: {heads: !int [2, 4.5]}]", "heads[1]: Expected a whole number, found 4.5."),
        ("[attention: {heads: !int {low: 4}}]", "!int needs high."),
        ("[attention: {heads: !int [8, 2]}]", "low must not exceed high, but got low=8, high=2."),
        ("[attention: {heads: !int {low: 2, high: 8, step: 0}}]", "step must be above 0, but got 0."),
        ("[attention: {heads: !int {low: 2, high: 8, step: 4}}]", "high must be low plus a whole number of steps: 6 or 10, not 8."),
        ("[attention: {heads: !int {low: 0, high: 8, log: true}}]", "log needs low above 0, but got low=0."),
        ("[attention: {heads: !int {low: 2, high: 8, step: 2, log: true}}]", "log and step cannot be used together"),
        ("[attention: {heads: !float [2, 4]}]", "Expected a whole number, found !float. Write !int."),
        ("[residual: {dropout: !int [0, 1], of: attention}]", "Expected a number, found !int. Write !float."),
        ("[residual: {dropout: !float {low: 0, high: 1, step: 0.3}, of: attention}]", "it is 3.33333 steps above low"),
        ("[attention: {bias: !int [0, 1]}]", "Expected true or false, found !int."),
    ],
)  # fmt: skip
def test_says_what_was_found_and_what_was_expected(text, expected):
    assert expected in only_problem(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5M", "Expected `quantity: {max: 5M}`, found the text '5M'."),
        ("{parameter: 5M}", "constraints.parameter: No quantity is called 'parameter'. Did you mean 'parameters'?"),
        ("{parameters: {maximum: 5}}", "A constraint has min and max, not 'maximum'. Did you mean 'max'?"),
        ("{parameters: {}}", "A constraint needs min, max or both."),
        ("{parameters: 5X}", "Expected a number such as 300_000, 5M or 2KiB, found the text '5X'."),
        ("{parameters: -5}", "Expected a number of 0 or more, found -5."),
        ("{parameters: {min: 5, max: 4}}", "min must not exceed max, but got min=5, max=4."),
        ("{parameters: !choice [1, 2]}", "found !choice."),
    ],
)
def test_says_what_is_wrong_with_a_constraint(text, expected):
    assert any(expected in problem for problem in problems(f"{HEAD}body: attention\nconstraints: {text}"))


def test_constraints_stand_at_the_top_alone():
    assert "attention has no field 'constraints'" in only_problem("[attention: {constraints: {parameters: 5}}]")


def test_reports_every_problem_at_once_in_the_order_of_the_file():
    text = "kind: decoder\nwidth: wide\nvocabulary: 256\nbody:\n  - atention\n  - attention: {heads: no, bais: true}\nextra: 1\n"
    lines = [problem.split(":")[1] for problem in problems(text)]
    assert sorted(lines) == ["2", "5", "6", "6", "7"]


def test_what_the_configurations_say_has_a_line():
    text = HEAD + "body:\n  - residual:\n      of:\n        attention: {heads: 7}\n"
    [problem] = problems(text)
    assert problem.startswith("f.yaml:7: body[0].residual.of.attention: ")
    assert "heads" in problem


def test_a_block_without_holes_is_checked_within_a_space():
    text = HEAD + "body:\n  - attention: {heads: 7}\n  - attention: {heads: !choice [2, 4]}\n"
    [problem] = problems(text)
    assert problem.startswith("f.yaml:5: body[0].attention: ")


def test_what_fits_one_of_the_widths_is_left_to_sampling():
    parse(HEAD.replace("64", "!choice [64, 70]") + "body: !choice [{attention: {heads: 7}}, feed_forward]")


SAMES = {
    "unknown": ("[attention: {heads: !choice {options: [2, 4], name: heads}}, linear_attention: {heads: !same head}]",
                "No hole is called 'head'. Did you mean 'heads'? Known: 'heads'."),
    "none": ("[linear_attention: {heads: !same head}]", "No hole here has a name."),
    "twice": ("[attention: {heads: !choice {options: [2, 4], name: h}}, attention: {heads: !int {low: 2, high: 4, name: h}}]",
              "Two holes are called 'h', first in line 4. To tie them, write !same h."),
    "conditional": ("[!choice [attention: {heads: !int {low: 2, high: 4, name: h}}, convolution], attention: {heads: !same h}]",
                    "is inside an option that need not be chosen"),
    "another option": ("!choice [attention: {heads: !int {low: 2, high: 4, name: h}}, linear_attention: {heads: !same h}]",
                       "is inside an option that need not be chosen"),
    "another type": ("[attention: {heads: !int {low: 2, high: 4, name: h}, bias: !same h}]",
                     "Expected true or false, but the hole 'h' (line 4) has other values."),
    "another role": ("[residual: {norm: !choice {options: [layer_norm, rms_norm], name: n}, of: !same n}]",
                     "Expected blocks, but the hole 'n' (line 4) has other values."),
    "itself": ("!choice {name: a, options: [attention, [convolution, !same a]]}", "contain each other by !same, so they would never end"),
    "each other": ("[!choice {name: a, options: [attention, [!same b]]}, !choice {name: b, options: [convolution, [!same a]]}]",
                   "The holes 'a', 'b' contain each other"),
    "a copy from outside": ("[repeat: {times: 2, of: {attention: {heads: !int {low: 2, high: 4, name: h, each: true}}}}, attention: {heads: !same h}]",
                            "is filled for each copy of a repeat, but this !same is outside"),
    "each outside": ("[attention: {heads: !int {low: 2, high: 4, each: true}}]", "each: true is outside of every repeat"),
    "each shared": ("[repeat: {times: 2, share_weights: true, of: {attention: {heads: !choice {options: [2, 4], each: true}}}}]",
                    "each: true is inside a repeat that shares its weights"),
    "equal options": ("[attention: {heads: !choice [2, 4, 2]}]", "Options 1 and 3 are equal"),
    "equal blocks": ("!choice\n  - attention\n  - convolution\n  - attention: {heads: 4}\n",
                     "Options 1 and 3 (lines 5 and 7) are equal; the options of a choice must never overlap."),
    "spelled twice": ("!choice [[sequence: [attention, convolution]], [attention, convolution]]", "can become the same"),
    "a range": ("[attention: {heads: !choice [!int {low: 2, high: 8, step: 3}, 5]}]", "can become the same"),
    "two ranges": ("[attention: {heads: !choice [!int {low: 1, high: 9, step: 4}, !int {low: 2, high: 11, step: 3}]}]",
                   "can become the same"),
    "two intervals": ("[residual: {dropout: !choice [!float [0, 0.3], !float [0.3, 0.5]], of: attention}]", "can become the same"),
    "within blocks": ("!choice [attention: {heads: !choice [2, 4]}, attention: {heads: 4}]", "can become the same"),
    "within lists": ("!choice [[!choice [attention, [attention, convolution]], feed_forward], [attention, convolution, feed_forward]]",
                     "can become the same"),
}  # fmt: skip


@pytest.mark.parametrize("case", SAMES)
def test_says_what_is_wrong_among_the_holes(case):
    text, expected = SAMES[case]
    [problem] = problems(f"{HEAD}body: {text}\n")
    assert problem.startswith("f.yaml:")
    assert expected in problem


@pytest.mark.parametrize(
    "text",
    [
        "[attention: {heads: !same h}, attention: {heads: !choice {options: [2, 4], name: h}}]",
        "!choice [[attention: {heads: !int {low: 2, high: 4, step: 2, name: h}}, linear_attention: {heads: !same h}], convolution]",
        "[!choice {options: [attention, [convolution, feed_forward]], name: mixer}, !same mixer]",
        "[repeat: {times: 2, of: [attention: {heads: !choice {options: [2, 4], name: h, each: true}}, attention: {heads: !same h}]}]",
        "[attention: {heads: !choice [!int {low: 1, high: 8, step: 7}, !int {low: 2, high: 4, step: 2}]}]",
        "[residual: {dropout: !choice [!float [0, 0.25], !float [0.3, 0.5]], of: attention}]",
        "!choice [attention: {heads: !choice [2, 4]}, attention: {heads: 8}, [attention, attention], []]",
        "[attention: {key_value_heads: !choice [null, 1, 2]}]",
        "[repeat: {times: !int [1, 4], share_weights: !choice [true, false], of: !choice [attention, convolution]}]",
    ],
)  # fmt: skip
def test_accepts(text):
    first = parse(f"{HEAD}body: {text}\n")
    assert parse(render(first.root)) == first


def test_an_option_list_too_large_to_compare_is_still_answered():
    many = ", ".join(f"[{', '.join(['!choice [attention, [convolution, feed_forward]]'] * 12)}, halting: {{times: {i}, of: attention}}]"
                     for i in range(2, 30))  # fmt: skip
    assert len(body(f"!choice [{many}]")[0].options) == 28


def test_prints_the_way_people_write():
    text = """\
kind: decoder
width: !choice [128, 192, 256]
vocabulary: 256
position: !choice [rotary, sinusoidal, none]
body:
  repeat:
    times: !int [2, 8]
    share_weights: !choice [false, true]
    of:
      - residual:
          norm: !choice [layer_norm, rms_norm]
          of: !choice
            - attention: {heads: !choice [2, 4, 8], key_value_heads: !choice [1, 2]}
            - sliding_window_attention: {window: !int {low: 16, high: 256, log: true}}
            - convolution: {kernel: !choice [3, 7, 15]}
      - residual: {norm: rms_norm, of: {gated_feed_forward: {gate: !choice [sigmoid, silu, gelu]}}}
final_norm:
  rms_norm: {eps: 1.0e-05}
constraints:
  parameters: {max: 5M}
  state_bytes_per_token: {max: 2KiB}
"""
    description = parse(text)
    assert render(description.root, description.constraints) == text


ODD_NAMES = ["no", "on", "1:30", "null", "a b", "5", "é", "", " x", "y", "a: b", "#", "{", "\u2028", "'", "tab\t", "-"]


# Strategies are made and validated once for each place of the language, which otherwise takes most of the time.
RARELY = st.integers(0, 3).map(lambda number: number == 0)
SOMETIMES = st.booleans()


@cache
@st.composite
def values(draw, accepted: schema.Accepts, depth: int, holes: bool):
    if accepted.optional and draw(RARELY):
        return None
    if accepted.shape == "branches":
        return tuple(draw(st.lists(lists_of_blocks(accepted, depth - 1, holes), max_size=2)))
    if accepted.shape == "blocks":
        return draw(lists_of_blocks(accepted, depth - 1, holes))
    if holes and depth > 0 and draw(RARELY):
        return draw(hole(accepted, values(accepted, depth - 1, holes)))
    if accepted.role:
        return draw(blocks(accepted.role, depth - 1, holes))
    return draw(scalars(accepted))


@cache
def scalars(accepted: schema.Accepts):
    options = [st.just(literal) for literal in accepted.literals]
    options += [{bool: st.booleans(), int: st.integers(), float: finite(), str: st.text()}[s] for s in accepted.scalars]
    return st.one_of(options)


def finite():
    return st.floats(-1e300, 1e300).map(lambda number: number + 0.0)


@cache
@st.composite
def hole(draw, accepted: schema.Accepts, option):
    names = {"name": draw(st.none() | st.sampled_from(ODD_NAMES)), "each": draw(st.booleans())}
    kinds = ["choice", "same"] + [kind.__name__ for kind in (int, float) if kind in accepted.scalars]
    match draw(st.sampled_from(kinds)):
        case "choice":
            return Choice(tuple(draw(st.lists(option, min_size=1, max_size=3))), **names)
        case "int":
            low, step = draw(st.integers(-100, 100)), draw(st.integers(1, 9))
            return Integers(low, low + step * draw(st.integers(0, 9)), step, **names)
        case "float":
            low = draw(finite())
            return Floats(low, low + draw(st.floats(0, 100)), None, low > 0 and draw(st.booleans()), **names)
    return Same(draw(st.sampled_from(ODD_NAMES)))


@cache
@st.composite
def lists_of_blocks(draw, accepted: schema.Accepts, depth: int, holes: bool):
    item = blocks(accepted.role, depth, holes)
    if holes and depth > 0:
        several = lists_of_blocks(accepted, depth - 1, holes)
        option = several.map(lambda items: items[0] if len(items) == 1 and isinstance(items[0], Block) else items)
        item = item | hole(accepted, item | option)
    return tuple(draw(st.lists(item, max_size=3 if depth > 0 else 1)))


@cache
@st.composite
def blocks(draw, role: str, depth: int, holes: bool = True):
    known = {name: kind for name, kind in registry.block_types(role).items() if name != "use"}  # it needs a `define`
    leaves = [name for name, kind in known.items() if not any(field.many for field in kind.fields.values())]
    kind = known[draw(st.sampled_from(sorted(known) if depth > 0 else leaves))]
    fields = {}
    for name, field in kind.fields.items():
        default = schema.default(field)
        if field.holds and field.default is None and not draw(RARELY):
            fields[name] = None  # a block may have a position of its own; if all have, checks of spaces take minutes
        elif field.default is default or draw(SOMETIMES):
            fields[name] = draw(values(schema.accepts(field.type), depth, holes))
        else:
            fields[name] = default
    return schema.complete(Block(kind.name, fields))


@given(blocks("model", 4))
@settings(max_examples=120, deadline=None)
def test_whatever_is_printed_is_read_as_the_same_tree_and_checked_without_an_accident(root):
    text = render(root)
    with (
        mock.patch.object(references, "check", return_value=[]),
        mock.patch.object(fitting, "problems", return_value=[]),
    ):
        assert parse(text) == Description(root)
    try:
        parse(text)
    except SpaceError as error:
        assert all(str(problem) for problem in error.problems)


@given(
    st.floats(0, 1e18) | st.integers(0, 10**15),
    st.sampled_from(language.QUANTITIES),
    st.sampled_from([0, 1, 1000, 1024, 10**6, 2**20]),
)
@settings(max_examples=100, deadline=None)
def test_constraints_are_printed_as_they_are_read(bound, quantity, unit):
    description = parse(HEAD + "body: attention")
    for high in (bound, bound * unit):
        constraint = Constraint(quantity, None, high)
        whole = replace(description, constraints=(constraint,))
        assert parse(render(whole.root, whole.constraints)) == whole
