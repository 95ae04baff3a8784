"""The embedded corpus is the same on every machine; the standard library is that of the Python that runs."""

from __future__ import annotations

import bz2
import codecs
import gzip
import hashlib
import lzma
import platform
import re
import runpy
import sysconfig
import zipfile
from pathlib import Path

import pytest

from nas.errors import UsageError
from nas.tasks.own import TaskProblem
from nas.tasks.text import corpus, options, reading
from nas.tasks.text.language_model import LanguageModel

SCRIPT = Path(__file__).parents[4] / "scripts" / "make_corpus.py"


def test_the_embedded_corpus_is_what_its_hash_says():
    files = corpus.files(corpus.EMBEDDED)
    joined = b"".join(data for _, data in files)
    assert hashlib.sha256(joined).hexdigest() == corpus.SHA256
    assert len(files) >= 250 and 2_500_000 < len(joined) < 3_000_000
    assert corpus.PACKED.stat().st_size <= 700_000
    assert b"\r" not in joined and all(data for _, data in files)
    assert len({name[0].lower() for name, _ in files}) > 20, "not only the first letters of the alphabet"


def test_the_embedded_corpus_is_divided_with_forty_documents_in_each_held_out_part():
    task = LanguageModel()
    task.prepare(None)
    facts = task.data_facts()
    assert task.data_hash == corpus.SHA256
    assert min(facts["documents"].values()) >= 40 and facts["document"] == "a file"
    assert max(facts["largest"].values()) <= 0.1
    assert 0 < facts["overlap"]["validation"] < 0.2 and 0 < facts["overlap"]["test"] < 0.2


def test_the_docs_state_the_number_of_files_and_the_hash_of_the_embedded_corpus():
    text = (SCRIPT.parent.parent / "docs/search-file.md").read_text()
    assert re.findall(r"\b[0-9a-f]{64}\b", text) == [corpus.SHA256]
    assert f"{len(corpus.files(corpus.EMBEDDED))} source files" in text


def test_a_damaged_corpus_is_refused():
    packed = corpus.pack([("a.py", b"one"), ("b/c.py", b"three")])
    assert corpus.unpack(packed, hashlib.sha256(b"onethree").hexdigest()) == [("a.py", b"one"), ("b/c.py", b"three")]
    with pytest.raises(UsageError, match="is damaged"):
        corpus.unpack(packed)
    with pytest.raises(UsageError, match="cannot be decompressed"):
        corpus.unpack(packed[5:])


@pytest.mark.skipif(not SCRIPT.exists(), reason="needs a checkout")
def test_the_script_makes_the_embedded_corpus():
    made = runpy.run_path(str(SCRIPT))
    if platform.python_version() != made["VERSION"]:
        pytest.skip(f"the corpus is made by Python {made['VERSION']}")
    assert made["chosen"](Path(sysconfig.get_paths()["stdlib"])) == corpus.files(corpus.EMBEDDED)


@pytest.mark.parametrize("name", [corpus.INSTALLED])
def test_a_corpus_says_when_python_came_without_its_sources(name, monkeypatch, tmp_path):
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(UsageError, match="Name text files of your own"):
        corpus.files(name)


TEXT = "Tölkien, 1954\n" * 20


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("plain.txt", TEXT.encode()),
        ("marked.txt", codecs.BOM_UTF8 + TEXT.encode()),
        ("wide.txt", TEXT.encode("utf-16")),
        ("big_endian.txt", codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be")),
        ("wider.txt", TEXT.encode("utf-32")),
        ("a.gz", gzip.compress(TEXT.encode(), mtime=0)),
        ("LOUD.GZ", gzip.compress(codecs.BOM_UTF8 + TEXT.encode(), mtime=0)),
        ("a.bz2", bz2.compress(TEXT.encode())),
        ("a.xz", lzma.compress(TEXT.encode())),
        ("no ending", bz2.compress(TEXT.encode("utf-16"))),
    ],
)
def test_text_is_read_as_people_write_it(name, data, tmp_path):
    (tmp_path / name).write_bytes(data)
    assert reading.contents(tmp_path / name).decode() == TEXT


def test_an_archive_with_one_file_is_that_file(tmp_path):
    for names in (["one"], ["one", "two"]):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for name in names:
                archive.writestr(name, TEXT)
        if names == ["one"]:
            assert reading.contents(tmp_path / "a.zip").decode() == TEXT
    with pytest.raises(TaskProblem, match=r"a\.zip cannot be read: the archive has 2 files, but must have one"):
        reading.contents(tmp_path / "a.zip")


@pytest.mark.parametrize("data", [b"\x89PNG\r\n\x1a\n" + bytes(range(32)) * 20, b"\x01\x02\x03" * 50, b"PK\x03\x04"])
def test_data_that_are_no_text_are_told_with_their_first_bytes(data, tmp_path):
    (tmp_path / "x.txt").write_bytes(data)
    with pytest.raises(TaskProblem, match=r"x\.txt (is not text: it begins with b'|cannot be read: )"):
        reading.contents(tmp_path / "x.txt")


def test_lists_keep_their_order_and_a_file_or_a_folder_is_no_pattern(tmp_path, monkeypatch):
    folder = tmp_path / "exp [v2]"
    folder.mkdir()
    for name in ("b.txt", "a.txt", "c [1].txt"):
        (folder / name).write_text(name)
    written = options.absolute(["b.txt", "c [1].txt", "*.txt"], folder)
    assert [path.name for path in reading.files(written)] == ["b.txt", "c [1].txt", "a.txt"]
    assert options.absolute(written, tmp_path / "elsewhere") == written
