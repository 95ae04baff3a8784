import re

from searchspace import zoo
from searchspace.cost import Shape
from searchspace.lines import human, human_bytes
from searchspace.model.architecture import Architecture
from searchspace.model.build import cost
from searchspace.model.drawing import draw, rows

SHAPE = Shape(length=32)
MIXED = """
kind: decoder
width: 16
vocabulary: 40
body:
  - convolution: {kernel: 5}
  - convolution: {kernel: 5}
  - convolution: {kernel: 5}
  - halting:
      times: 3
      of:
        repeat: {times: 2, share_weights: true, of: {residual: {of: {parallel: {of: [attention, feed_forward]}}}}}
  - repeat:
      times: 4
      of:
        - residual: {of: {attention: {heads: 2}}}
        - residual: {of: feed_forward}
"""


def test_the_lines_below_a_line_add_up_to_it() -> None:
    for architecture in (Architecture.parse(MIXED), *map(zoo.load, zoo.names())):
        lines = rows(architecture, SHAPE)
        assert lines[0].cost == cost(architecture, SHAPE)
        for at, line in enumerate(lines):
            below = []
            for other in lines[at + 1 :]:
                if other.depth <= line.depth:
                    break
                if other.depth == line.depth + 1:
                    below.append(other.cost)
            if below:
                assert sum(cost.parameters for cost in below) == line.cost.parameters
                assert sum(cost.flops for cost in below) == line.cost.flops
                assert sum(cost.state_bytes for cost in below) == line.cost.state_bytes


def test_repeats_are_drawn_once_and_shared_weights_say_so() -> None:
    texts = [row.text.strip() for row in rows(Architecture.parse(MIXED), SHAPE)]
    assert "convolution kernel=5 x 3" in texts
    assert "repeat x 4" in texts
    assert "repeat times=2 share_weights=true shared x 3" in texts
    assert "residual shared x 2" in texts
    assert sum(text.startswith("attention") for text in texts) == 2


def test_columns_are_aligned_and_named() -> None:
    lines = draw(Architecture.parse(MIXED), SHAPE).splitlines()
    assert re.split(r"\s{2,}", lines[0]) == ["block", "output", "parameters", "FLOPs", "state"]
    assert len({len(line) for line in lines}) == 1
    assert "1 x 32 x 40" in lines[-1]
    assert "kernel=5" in lines[4]


def test_the_last_line_of_a_classifier_is_its_classes() -> None:
    assert rows(zoo.load("vit", "tiny"), SHAPE)[-1].output == (1, 1, 10)


def test_numbers_are_short() -> None:
    assert [human(n) for n in (0, 999, 1000, 999_499, 999_999, 1_234_567, 10**15)] == [
        "0", "999", "1k", "999k", "1M", "1.23M", "1P",
    ]  # fmt: skip
    assert [human_bytes(n) for n in (0, 1023, 1024, 1536, 5 << 20)] == ["0B", "1023B", "1KiB", "1.5KiB", "5MiB"]


def test_all_kinds_of_attention_have_one_family() -> None:
    body = "[attention, linear_attention, sparse_attention: {pattern: fixed}, gru]"
    found = rows(Architecture.parse(f"{{kind: decoder, width: 16, vocabulary: 8, body: {body}}}"), SHAPE)
    families = {row.label.partition(" ")[0]: row.family for row in found}
    assert {families[name] for name in families if "attention" in name} == {"attention"}
    assert families["gru"] == "recurrence" and families["logits"] == ""
