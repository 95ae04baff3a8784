"""Documents are divided by their content: the same way everywhere, all of one kind together, none too long."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nas.tasks.text.documents import File
from nas.tasks.text.parts import LARGEST, Rules, arrange

BY_DOCUMENTS = Rules("documents", documents="files")


def corpus(count, part=None, seed=0):
    """Files of random letters, each with its own content."""
    random = np.random.default_rng(seed)
    sizes = random.integers(20, 200, count)
    return [
        File(f"{number}.txt", bytes(random.integers(97, 123, size, np.uint8)), part)
        for number, size in enumerate(sizes)
    ]


def divided(files, rules=BY_DOCUMENTS):
    """name -> (part, content) of every document."""
    arranged = arrange(files, rules)
    ends = [*arranged.starts[1:], len(arranged.data)]
    return {
        name: (int(np.searchsorted(arranged.bounds, start, side="right")), arranged.data[start:end])
        for name, start, end in zip(arranged.names, arranged.starts, ends)
    }


@settings(max_examples=15, deadline=None)
@given(count=st.integers(200, 1500), seed=st.integers(0, 100))
def test_each_held_out_part_has_forty_documents_and_about_its_share(count, seed):
    parts = Counter(part for part, _ in divided(corpus(count, seed=seed)).values())
    for part in (1, 2):
        assert 40 <= parts[part] <= max(40, count * 0.05 + 5 * (count * 0.05) ** 0.5)


def test_a_document_keeps_its_part_if_others_are_added_renamed_or_in_another_order():
    files = corpus(1200)
    before = divided(files)
    more = [*reversed(files), *corpus(300, seed=1)]
    after = divided([File(f"new/{number}", each.data) for number, each in enumerate(more)])

    by_content = {content: part for part, content in after.values()}
    assert all(by_content.get(content) == part for part, content in before.values())


def test_equal_documents_are_in_one_part():
    files = corpus(250)
    copies = [File(f"copy-{each.name}", each.data) for each in files]
    found = divided([*files, *copies])
    for each in files:
        part, content = found[each.name]
        assert content == each.data
        # The copy of a held-out document would count as an independent one.
        assert found.get(f"copy-{each.name}") == (None if part else (part, content))
    assert {name: part for name, (part, _) in found.items() if name in {each.name for each in files}} == {
        name: part for name, (part, _) in divided(files).items()
    }


def test_a_few_texts_that_are_there_many_times_are_not_on_both_sides():
    files = [File(f"{copy}/{each.name}", each.data) for copy in range(30) for each in corpus(12)]
    found = list(divided(files).values())
    contents = [{content for part, content in found if part == place} for place in range(3)]
    assert all(contents) and sum(map(len, contents)) == 12


def test_a_text_of_equal_documents_still_has_three_parts():
    files = [File(f"{number}", b"the same line\n") for number in range(50)]
    parts = Counter(part for part, _ in divided(files).values())
    assert parts[1] == parts[2] == 10


def test_no_document_is_most_of_a_held_out_part_and_what_is_cut_off_is_not_trained_on():
    files = corpus(300)
    held = {name for name, (part, _) in divided(files).items() if part}
    long = [File(each.name, each.data + each.data * (500 * (each.name in held))) for each in files]
    found = divided(long)
    for part in (1, 2):
        sizes = np.array([len(content) for where, content in found.values() if where == part])
        assert sizes.max() <= LARGEST * sizes.sum() + 1
    whole = {each.name: each.data for each in long}
    for name, (part, content) in found.items():
        assert content == whole[name] or (part and whole[name].startswith(content))
    assert arrange(long, BY_DOCUMENTS).left_out == sum(map(len, whole.values())) - sum(
        len(content) for _, content in found.values()
    )


def test_given_parts_are_kept_whole_and_what_is_held_out_is_halved():
    files = [*corpus(5, "train"), *corpus(61, "held_out", seed=1)]
    files = [File(f"{each.part}/{each.name}", each.data, each.part) for each in files]
    for by in ("documents", "position"):
        found = divided(files, Rules(by, documents="files"))
        counts = Counter(part for part, _ in found.values())
        assert all((part == 0) == name.startswith("train/") for name, (part, _) in found.items())
        assert counts[0] == 5 and counts[1] + counts[2] == 61
        assert abs(counts[1] - counts[2]) <= (1 if by == "documents" else 12)
    order = [part for name, (part, _) in found.items() if part]
    assert order == sorted(order), "by position the first half of the text is validated on"
    three = [*corpus(3, "test"), *corpus(3, "train", 1), *corpus(3, "validation", 2)]
    three = [File(f"{each.part}/{each.name}", each.data, each.part) for each in three]
    assert {name.partition("/")[0]: part for name, (part, _) in divided(three).items()} == {
        "train": 0,
        "validation": 1,
        "test": 2,
    }


@pytest.mark.parametrize("rules", [Rules(), Rules("position", documents="files")])
def test_by_position_nothing_is_moved(rules):
    files = corpus(20)
    arranged = arrange(files, rules)
    assert arranged.data == b"".join(each.data for each in files)
    assert arranged.bounds is None and arranged.left_out == 0
