"""Architectures aligned layer by layer."""

from searchspace.model.architecture import Architecture
from searchspace.model.layers import aligned

HEAD = "kind: decoder\nwidth: 16\nvocabulary: 11\n"
ENCODER = "kind: encoder\nwidth: 16\nvocabulary: 11\nclasses: 3\n"


def architecture(*body: str, head: str = HEAD) -> Architecture:
    return Architecture.parse(head + "body:\n" + "".join(f"  - {block}\n" for block in body))


def test_layers_are_unrolled_and_heads_are_always_shown():
    lines = aligned([architecture("repeat: {times: 2, of: [residual: {norm: rms_norm, of: attention}]}")] * 2)
    body = [line for line in lines if line.place.startswith("body")]
    assert [line.place for line in body] == ["body[0]", "body[1]"]
    assert {line.texts for line in body} == {("residual norm=rms_norm [attention heads=4]",) * 2}
    assert not any(line.differs for line in lines)


def test_equal_layers_share_a_line_and_others_are_marked():
    one = architecture("attention", "feed_forward", "gru")
    two = architecture("attention", "convolution", "feed_forward", "gru")
    three = architecture("attention", "feed_forward")
    lines = {line.place: line for line in aligned([one, two, three])}
    assert lines["body[0]"].texts == ("attention heads=4",) * 3
    assert lines["body[1]"].texts == ("", "convolution", "")
    assert lines["body[2]"].texts == ("feed_forward",) * 3
    assert lines["body[3]"].texts == ("gru", "gru", "")
    assert [lines[f"body[{i}]"].differs for i in range(4)] == [False, True, False, True]


def test_options_of_the_model_come_first_and_branches_are_told_apart():
    one = architecture("parallel: {of: [attention, [feed_forward, gru]]}")
    two = architecture("gru", head=HEAD.replace("16", "32"))
    lines = aligned([one, two])
    assert [line.place for line in lines] == ["kind", "width", "vocabulary", "body[0]"]
    assert lines[1].texts == ("16", "32") and lines[1].differs
    assert lines[3].texts == ("parallel [attention heads=4 | feed_forward, gru]", "gru")


def test_models_of_different_kinds_can_be_compared():
    other = Architecture.parse("kind: encoder\nwidth: 16\nvocabulary: 11\nclasses: 3\nbody: gru\n")
    lines = {line.place: line.texts for line in aligned([architecture("gru"), other])}
    assert lines["kind"] == ("decoder", "encoder")
    assert lines["classes"] == ("", "3")
    assert lines["body[0]"] == ("gru", "gru")


def test_the_layers_of_a_halting_block_have_lines_of_their_own():
    halting = architecture("halting: {times: 3, of: [attention, residual: {of: gru}]}", "feed_forward")
    lines = [line.texts[0] for line in aligned([halting, halting]) if line.place.startswith("body")]
    assert lines == ["halting times=3", "| attention heads=4", "| residual [gru]", "feed_forward"]


def test_a_repeat_that_shares_its_weights_has_lines_for_each_step():
    shared = architecture("repeat: {times: 3, share_weights: true, of: [attention, gru]}")
    lines = [line.texts[0] for line in aligned([shared, shared]) if line.place.startswith("body")]
    assert lines == [
        "repeat times=3 share_weights=true",
        "| step 1: attention heads=4",
        "| step 1: gru",
        *(f"| step {step}: {of} (weights of step 1)" for step in (2, 3) for of in ("attention heads=4", "gru")),
    ]


def test_very_many_steps_are_counted():
    shared = architecture("repeat: {times: 5000, share_weights: true, of: gru}")
    lines = [line.texts[0] for line in aligned([shared, shared]) if line.place.startswith("body")]
    assert len(lines) == 102 and lines[-1] == "| 4,900 more steps (weights of step 1)"


def test_the_layers_of_a_reversible_block_name_their_stream():
    both = architecture("reversible: {times: 2, of: [attention, [feed_forward, gru]]}")
    lines = [line.texts[0] for line in aligned([both, both]) if line.place.startswith("body")]
    once = ["| stream 1: attention heads=4", "| stream 2: feed_forward", "| stream 2: gru"]
    assert lines == ["reversible times=2", *once, *once]


def test_the_layers_of_an_hourglass_name_their_stage():
    stages = "[[attention, {repeat: {times: 2, of: gru}}], [attention]]"
    long, short = (
        architecture(f"hourglass: {{stages: {stages}, decoder: {decoder}}}", head=ENCODER)
        for decoder in ("[gru, feed_forward]", "[]")
    )
    lines = [line.texts for line in aligned([long, short]) if line.place.startswith("body")]
    stages = ["stage 1: attention heads=4", "stage 1: gru", "stage 1: gru", "stage 2: attention heads=4"]
    assert lines[:5] == [("hourglass",) * 2, *((f"| {line}",) * 2 for line in stages)]
    assert lines[5:] == [("| decoder: gru", ""), ("| decoder: feed_forward", "")]


def test_layers_inside_layers_are_unrolled_too():
    nested = architecture("halting: {times: 3, of: [repeat: {times: 2, share_weights: true, of: gru}]}")
    lines = [line.texts[0] for line in aligned([nested, nested]) if line.place.startswith("body")]
    assert lines[1:] == [
        "| repeat times=2 share_weights=true",
        "| | step 1: gru",
        "| | step 2: gru (weights of step 1)",
    ]
