"""JSON of unknown origin is limited before it is parsed, and its values are checked."""

import gzip

import pytest

from kernels.dispatch import limits, table


def test_deep_and_large_texts_are_refused_before_they_are_parsed(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match="nested deeper than 32"):
        limits.loads("[" * 100_000)
    assert limits.loads('["[[[[", {"a": "\\\\]"}]') == ["[[[[", {"a": "\\]"}]
    with pytest.raises(ValueError, match="NaN is no number"):
        limits.loads("[NaN]")
    monkeypatch.setattr(limits, "MOST_BYTES", 1000)
    (tmp_path / "large.json").write_text("[" + "1," * 1000 + "1]")
    with pytest.raises(ValueError, match="at most 1,000"):
        limits.load(tmp_path / "large.json")


def test_a_gzip_bomb_is_not_unpacked(tmp_path, monkeypatch):
    bomb = tmp_path / "bomb.jsonl.gz"
    bomb.write_bytes(gzip.compress(b"{}\n" * 100_000))
    monkeypatch.setattr(limits, "MOST_BYTES", 1000)
    with pytest.raises(ValueError, match="more than 1,000 bytes unpacked"):
        for _ in limits.lines(bomb):
            pass
    bomb.write_bytes(gzip.compress(b"x" * 100_000))
    monkeypatch.setattr(limits, "MOST_LINE", 100)
    with pytest.raises(ValueError, match="a line of more than 100 bytes"):
        list(limits.lines(bomb))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("0.25", '"fast"'), "'milliseconds' of an entry must be a finite number of at least 0, but is 'fast'"),
        (("0.25", "-1"), "milliseconds"),
        (('"rows": 16', '"rows": "16"'), "'sizes' of an entry must be whole numbers by name"),
        (('"dtype"', '"dtyp"'), "an entry has no 'dtype'"),
        (('"entries": [', '"entries": [7, '), "an entry must be a mapping, but is 7"),
    ],
)
def test_a_table_with_a_value_of_another_kind_is_refused(tmp_path, change, message):
    from benchmarks.support.tuning_files import files

    path = tmp_path / "table.json"
    text = files()["a table"][0].decode()
    path.write_text(text)
    assert len(table.read(path).entries) == 1
    path.write_text(text.replace(*change, 1))
    with pytest.raises(ValueError, match=message):
        table.read(path)
