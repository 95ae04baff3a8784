"""The embedded corpus is the same on every machine; the standard library is that of the Python that runs."""

from __future__ import annotations

import hashlib
import platform
import re
import runpy
import sysconfig
from pathlib import Path

import pytest

from nas.errors import UsageError
from nas.tasks.text import corpus
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


def test_the_first_bytes_of_the_standard_library_have_a_fixed_size_and_order():
    first, again = corpus.standard_library(300_000), corpus.standard_library(300_000)
    assert first == again and len(first) == 300_000
    assert b"\r" not in first
    assert corpus.standard_library(1_000) == first[:1_000]
    assert b"".join(data for _, data in corpus.files(corpus.FIRST)).startswith(first)
    assert b"".join(data for _, data in corpus.files(corpus.INSTALLED)).startswith(first)


@pytest.mark.parametrize("name", [corpus.FIRST, corpus.INSTALLED])
def test_a_corpus_says_when_python_came_without_its_sources(name, monkeypatch, tmp_path):
    monkeypatch.setattr(corpus.sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    with pytest.raises(UsageError, match=r"finds 0\. Name text files of your own"):
        corpus.files(name)
