"""Documents are found where the options say, and together they are the whole text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nas import tasks
from nas.errors import UsageError
from nas.tasks.text.documents import FILES, PIECE, File, chosen, find

WIKI = "\n = Robert Boulter = \n\n An actor .\n = = Career = = \n He acted .\n = Du Fu = \n\n A poet .\n"
HEADING = {"separator": "^ = [^=].* = $"}


@given(st.lists(st.text("aä\n ", max_size=400), min_size=1, max_size=8), st.sampled_from(["files", "pieces"]))
def test_documents_are_the_whole_text_in_order_and_cut_no_character(contents, rule):
    files = [File(f"{number}.txt", content.encode()) for number, content in enumerate(contents)]
    joined = b"".join(each.data for each in files)
    found = find(files, rule)

    assert b"".join(joined[each.start : each.end] for each in found) == joined
    assert len({each.name for each in found}) == len(found)
    assert all(joined[each.start : each.end].decode() for each in found)
    assert rule == "pieces" or len(found) == sum(bool(content) for content in contents)


def test_pieces_end_at_blank_lines_and_never_reach_into_another_file():
    paragraph = b"A line of a paragraph.\n" * 30 + b"\n"
    files = [File("a.txt", paragraph * 200), File("b.txt", paragraph * 50)]
    joined = files[0].data + files[1].data
    found = find(files, "pieces")

    assert all(joined[each.start : each.end].endswith(b"\n\n") for each in found)
    assert len(files[0].data) in {each.end for each in found}
    assert all(PIECE / 2 <= each.size <= 2 * PIECE for each in found)
    assert found[1].name == f"a.txt@{found[1].start}"


def test_records_begin_at_the_separator_and_are_called_by_their_first_line():
    found = find([File("wiki.txt", WIKI.encode()), File("more.txt", b" = Du Fu = \n Another .\n")], HEADING)
    assert [each.name for each in found] == ["= Robert Boulter =", "= Du Fu =", f"= Du Fu = @{len(WIKI)}"]
    assert WIKI.encode()[found[0].start : found[0].end].endswith(b"He acted .\n")
    with pytest.raises(UsageError, match="finds no document within the text"):
        find([File("wiki.txt", WIKI.encode())], {"separator": "^CHAPTER"})


def test_auto_takes_files_only_if_enough_can_be_held_out():
    def made(count, part=None):
        return [File(str(number), b"x", part) for number in range(count)]

    assert chosen(made(FILES), "auto") == "files"
    assert chosen(made(FILES - 1), "auto") == "pieces"
    assert chosen(made(3), "files") == "files"
    held = FILES // 5
    assert chosen([*made(1, "train"), *made(held, "validation"), *made(held, "test")], "auto") == "files"
    assert chosen([*made(500, "train"), *made(1, "held_out")], "auto") == "pieces"
    assert chosen([*made(1, "train"), *made(2 * held, "held_out")], "auto") == "files"


@pytest.mark.parametrize("wrong", ["file", {"separator": "("}, {"separator": ""}, {"seperator": "x"}, 3])
def test_a_wrong_rule_is_refused(wrong):
    with pytest.raises(UsageError, match=r"option 'documents': must (be auto, files or|have a separator)"):
        tasks.load({"language_model": {"documents": wrong}})
