import json
import math
import os
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from searchspace.errors import SpaceError
from searchspace.language import documents
from searchspace.language.documents import MAX_DEPTH, Tagged, load, number, parse
from searchspace.tree import Mark


def value(text: str):
    return parse(f"key: {text}\n").data["key"]


def problems(text: str, **options) -> list[str]:
    with pytest.raises(SpaceError) as caught:
        parse(text, "file.yaml", **options)
    return [str(problem) for problem in caught.value.problems]


@pytest.mark.parametrize(
    "word", ["no", "No", "NO", "off", "Off", "yes", "YES", "on", "y", "n", "Y", "N", "none", "None", "inf", "nan", "."]
)
def test_the_words_of_yaml_1_1_stay_words(word):
    assert value(word) == word


@pytest.mark.parametrize("text", ["1:30", "190:20:30", "2001-12-14", "2001-12-14t21:59:43.10-05:00", "1.2.3", "5M"])
def test_times_dates_and_versions_stay_text(text):
    assert value(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("1_000", 1000),
        ("1_000.5", 1000.5),
        ("0o17", 15),
        ("0x1F", 31),
        ("010", 10),
        ("+7", 7),
        ("-0", 0),
        (".5", 0.5),
        ("5.", 5.0),
        (".inf", math.inf),
        ("-.inf", -math.inf),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
        ("'1e-3'", "1e-3"),
        ('"true"', "true"),
        ("''", ""),
        ("| \n  12", "12\n"),
    ],
)
def test_reads_scalars_as_yaml_1_2_does(text, expected):
    read = value(text)
    assert read == expected
    assert type(read) is type(expected)


def test_reads_not_a_number():
    assert math.isnan(value(".nan"))


def test_keys_are_always_text():
    assert parse("1: a\ntrue: b\nno: c\n1.5: d").data == {"1": "a", "true": "b", "no": "c", "1.5": "d"}


def test_allowed_tags_come_back_and_take_no_step_of_a_path():
    document = parse("a: !choice\n  - x\n  - b: !int [2, 8]\n", "f", tags=("!choice", "!int"))
    assert document.data == {"a": Tagged("!choice", ["x", {"b": Tagged("!int", [2, 8])}])}
    assert document.mark(("a", 1, "b", 0)).line == 3


@pytest.mark.parametrize(
    "tag", ["!!python/object/apply:os.system", "!!python/name:os.system", "!unknown", "!", "!<tag:x>"]
)
def test_any_other_tag_is_an_error_and_runs_nothing(tag):
    [message] = problems(f"fine: 1\na: {tag} ['echo']", tags=("!choice",))
    assert message.startswith("file.yaml:2: ")
    assert "Allowed: !choice" in message


def test_names_the_nearest_tag():
    [message] = problems("a: !chioce [1, 2]", tags=("!choice", "!int"))
    assert "Did you mean '!choice'?" in message


def test_every_duplicate_key_is_reported_with_both_lines():
    messages = problems("a: 1\nb: {c: 1, c: 2}\na: 2\n")
    assert messages == [
        "file.yaml:2: 'c' is written twice, first in line 2.",
        "file.yaml:3: 'a' is written twice, first in line 1.",
    ]


def test_a_tab_is_named():
    [message] = problems("a:\n\tb: 1\n")
    assert message == "file.yaml:2: A tab cannot indent YAML; use spaces."


def test_aliases_and_merges_are_read():
    text = "base: &base {heads: 4, bias: true}\nuse: *base\nmore: {<<: *base, heads: 8}\nboth:\n  <<: [*base, {x: 1}]\n"
    data = parse(text).data
    assert data["use"] == {"heads": 4, "bias": True}
    assert data["more"] == {"heads": 8, "bias": True}
    assert data["both"] == {"heads": 4, "bias": True, "x": 1}


def bomb(kind: str) -> str:
    lines = ["a0: &a0 {k: [1, 1, 1, 1, 1, 1, 1, 1, 1, 1]}"]
    for level in range(1, 30):
        below = f"*a{level - 1}"
        many = ", ".join(f"k{i}: {below}" for i in range(9)) if kind == "alias" else f"<<: [{', '.join([below] * 9)}]"
        lines.append(f"a{level}: &a{level} {{{many}}}")
    return "\n".join(lines)


@pytest.mark.parametrize("kind", ["alias", "merge"])
def test_a_bomb_of_references_is_refused(kind):
    [message] = problems(bomb(kind))
    assert "values, with aliases expanded" in message


def test_aliases_may_not_build_what_could_not_be_written():
    chain = ["a0: &a0 " + "[" * 40 + "]" * 40]
    chain += [f"a{i}: &a{i} " + "[" * 40 + f"*a{i - 1}" + "]" * 40 for i in range(1, 50)]
    [message] = problems("\n".join(chain))
    assert message.startswith("file.yaml:2: Nested deeper")


@pytest.mark.parametrize("text", ["a: &a [*a]", "a: &a {b: *a}", "&a [[[*a]]]"])
def test_an_anchor_that_holds_itself_is_refused(text):
    [message] = problems(text)
    assert "inside its own anchor" in message


def test_an_alias_needs_an_anchor():
    [message] = problems("a: &first 1\nb: *frist")
    assert message == "file.yaml:2: *frist has no anchor &frist above it. Did you mean 'first'?"


@pytest.mark.parametrize(
    "text",
    ["[" * 100_000, "{a: " * 50_000, "- " * 50_000, "a: " + "[" * 500 + "]" * 500, "? " * 10_000],
    ids=["lists", "mappings", "entries", "closed", "keys"],
)
def test_deep_nesting_is_refused_before_python_feels_it(text):
    [message] = problems(text)
    assert f"deeper than {MAX_DEPTH}" in message or "key" in message


def test_nesting_up_to_the_limit_is_read():
    data = parse("[" * MAX_DEPTH + "]" * MAX_DEPTH).data
    for _ in range(MAX_DEPTH - 1):
        [data] = data
    assert data == []


def test_a_great_number_of_values_is_refused():
    [message] = problems("[" + "1," * 200_000 + "]")
    assert f"More than {documents.MAX_NODES} values" in message


def test_a_great_number_of_digits_is_refused():
    [message] = problems("a: " + "9" * 100_000)
    assert message == "file.yaml:1: A number of more than 100 digits."


def test_a_large_file_is_refused_by_what_is_read_of_it(tmp_path):
    path = tmp_path / "large.yaml"
    with path.open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(SpaceError, match=r"104,857,600 bytes; a description has at most 4,194,304"):
        load(path)


def test_a_large_text_is_refused():
    [message] = problems("#" * (documents.MAX_BYTES + 1))
    assert "Is this the right file?" in message


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"a: 1\nb: \xff\n", "f.yaml:2: The byte 0xff is not UTF-8"),
        ("a: 1".encode("utf-16"), "f.yaml:1: The file is UTF-16"),
        (b"a: 1\nb: x\x00y\n", "f.yaml:2: The character U+0000 is not allowed in YAML"),
        (b"", "f.yaml:1: The file is empty"),
        (b"# only words\n", "The file is empty"),
        (b"a: 1\n---\nb: 2\n", "f.yaml:2: A second document starts here"),
        (b"a: [1, 2", "This is not YAML"),
        (b"a: 1\n b: 2", "f.yaml:2: This is not YAML"),
        (b"? [a, b]\n: 1\n", "A key must be a plain name"),
        (b"'': 1", "this one is empty"),
        (b"!choice a: 1", "carries a tag"),
        (b"%YAML 3.0\n---\na: 1", "This is not YAML"),
        (b"a: {<<: 5}", "'<<' merges a mapping"),
    ],
)
def test_says_where_a_file_is_broken(tmp_path, monkeypatch, content, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "f.yaml").write_bytes(content)
    with pytest.raises(SpaceError) as caught:
        load("f.yaml")
    assert expected in str(caught.value)


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path):
    (tmp_path / "f.yaml").write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert load(tmp_path / "f.yaml").data == {"a": 1}
    assert parse("\ufeffa: 1").data == {"a": 1}


def test_surrogates_are_refused():
    [message] = problems("a: \ud800")
    assert "U+D800" in message


def test_a_missing_file_and_a_folder_say_so(tmp_path):
    with pytest.raises(SpaceError, match="No such file"):
        load(tmp_path / "none.yaml")
    with pytest.raises(SpaceError, match="directory"):
        load(tmp_path)
    with pytest.raises(SpaceError, match="Cannot read"):
        load("a\0b")


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may read everything")
def test_a_file_without_permission_says_so(tmp_path):
    (tmp_path / "f.yaml").write_text("a: 1")
    (tmp_path / "f.yaml").chmod(0)
    with pytest.raises(SpaceError, match="Permission denied"):
        load(tmp_path / "f.yaml")


def test_marks_point_at_keys_and_items_and_else_at_the_nearest_ancestor():
    document = parse("a:\n  b:\n    - x\n    - {c: 1}\n", "f.yaml")
    assert document.mark() == Mark("f.yaml", 1, 1)
    assert document.mark(("a", "b")) == Mark("f.yaml", 2, 3)
    assert document.mark(("a", "b", 1, "c")) == Mark("f.yaml", 4, 8)
    assert document.mark(("a", "b", 1, "absent", "deeper")) == Mark("f.yaml", 4, 7)
    assert document.mark(("a", "b", 5)) == Mark("f.yaml", 2, 3)


def test_errors_survive_a_process_boundary():
    with pytest.raises(SpaceError) as caught:
        parse("a: 1\na: 2")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


words = st.text(st.characters(max_codepoint=0xFFFF, exclude_categories=["Cs"]), max_size=20)
plain_data = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | words,
    lambda below: st.lists(below, max_size=4) | st.dictionaries(words.filter(bool), below, max_size=4),
    max_leaves=20,
)


@given(plain_data)
@settings(max_examples=150, deadline=None)
def test_reads_json(data):
    assert parse(json.dumps(data)).data == data


@given(st.text(alphabet=st.sampled_from("ab:-[]{}!&*<>|?#%@ \n\t'\"0123.,~") | st.characters(), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_text_is_read_or_refused(text):
    try:
        parse(text, tags=("!choice",))
    except SpaceError as error:
        assert error.problems


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5M", 5_000_000),
        ("2KiB", 2048),
        ("2Ki", 2048),
        ("1.5k", 1500),
        ("1.1k", 1100),
        ("3GB", 3 * 10**9),
        ("1 MiB", 2**20),
        ("1_000", 1000),
        ("2e3k", 2_000_000),
        ("0.25", 0.25),
        (7, 7),
        (0.5, 0.5),
    ],
)
def test_sizes_are_read_as_people_write_them(text, expected):
    assert number(text) == expected
    assert type(number(text)) is type(expected)


@pytest.mark.parametrize(
    "text", ["", "M", "5X", "five", "5 M M", "7B", "1e99999999", None, True, [], math.nan, math.inf]
)
def test_what_is_no_size_is_refused(text):
    with pytest.raises(SpaceError, match="Expected a "):
        number(text)


def test_a_file_with_very_many_problems_is_answered_with_the_first():
    assert len(problems("a: 1\n" * 1000)) == documents.MAX_PROBLEMS


def test_merges_are_counted_while_they_are_read():
    """20,000 merges of one mapping took 14 s, because they were counted at the end of the mapping."""
    merges = "<<: *b, " * 20_000
    [message] = problems(f"b: &b {{a: 1, c: 2}}\nx: {{{merges}}}\n" + "]")  # the fault after the merges is not reached
    assert f"More than {documents.MAX_NODES} values" in message


def test_the_message_of_a_file_with_many_long_problems_is_short():
    words = [f"'{'k' * 900}{index}': 1\n" * 2 for index in range(90)]
    with pytest.raises(SpaceError) as caught:
        parse("".join(words))
    assert len(caught.value.problems) == 90
    assert len(str(caught.value)) < 16_000 and "more problems" in str(caught.value)


def test_the_largest_space_of_the_examples_is_far_from_the_limit():
    from pathlib import Path

    path = Path(__file__).parents[3] / "examples" / "spaces" / "everything_encoder_decoder.yaml"
    loaded = load(path, ("!choice", "!int", "!float", "!same"))
    assert loaded._root.size * 1.25 < documents.MAX_NODES
