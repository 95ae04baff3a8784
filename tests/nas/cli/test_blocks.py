"""nas blocks: the list, one block, and JSON."""


def test_the_list_has_a_line_for_each_block(nas):
    from searchspace.registry import block_types

    lines = nas("blocks").out.splitlines()
    assert lines[0].split() == ["name", "role", "family", "summary"]
    listed = {line.split()[0] for line in lines[1:]}
    assert listed == set(block_types())


def test_one_block_is_described_with_its_options(nas):
    ended = nas("blocks", "gru")
    for piece in ("formula ", "https://arxiv.org/abs/1406.1078", "variant", "default", "causal, bidirectional"):
        assert piece in ended.out
    (found,) = nas("blocks", "gru", "--json").json()
    assert found["name"] == "gru" and {option["name"] for option in found["options"]} >= {"variant", "start"}


def test_a_typing_mistake_is_answered_with_the_nearest_name(nas):
    ended = nas("blocks", "slidng_window")
    assert (ended.code, ended.out) == (2, "")
    assert "Did you mean 'sliding_window_attention'?" in ended.err


def test_the_list_can_be_filtered(nas):
    assert {row["family"] for row in nas("blocks", "--family", "norm", "--json").json()} == {"norm"}
    assert {row["role"] for row in nas("blocks", "--role", "position", "--json").json()} == {"position"}


def test_a_file_to_check_needs_both_words(nas, tmp_path):
    for words in (("test",), ("gru", str(tmp_path / "mine.py"))):
        ended = nas("blocks", *words)
        assert (ended.code, ended.out) == (2, "") and "nas blocks test FILE" in ended.err
    ended = nas("blocks", "test", str(tmp_path / "mine.py"))
    assert ended.code == 2 and "cannot be read" in ended.err
    ended = nas("--blocks", str(tmp_path / "mine.py"), "blocks")
    assert ended.code == 2 and "cannot be read" in ended.err
