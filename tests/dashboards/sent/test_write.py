"""A report is one small file that needs nothing else."""

from __future__ import annotations

import re
import warnings
from xml.etree import ElementTree

import pytest

from dashboards.sent.write import write
from tests.dashboards.conftest import EVIL, REAL


@pytest.mark.parametrize("name", [*REAL, "new"])
def test_a_report_is_one_file_without_scripts_or_addresses(databases, tmp_path, name):
    (path,) = write(name, databases[name], tmp_path / "report.html", "html")
    text = path.read_text(encoding="utf-8")

    assert not re.findall(r"<(?:script|link|img|iframe|form|input)\b", text)
    assert not re.findall(r"""(?:href|src)=["'](?!#)""", text)
    assert "https://" not in text
    assert path.stat().st_size < 1_000_000


def test_a_report_is_valid_html(databases, tmp_path):
    html5lib = pytest.importorskip("html5lib")
    (path,) = write("finished", databases["finished"], tmp_path / "report.html", "html")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parser = html5lib.HTMLParser()
        parser.parse(path.read_bytes())

    assert parser.errors == []


def test_a_report_of_a_hostile_study_is_harmless(databases, tmp_path):
    (path,) = write(f"a/../{EVIL}", databases["hostile"], tmp_path / "report.html", "html")
    assert "<script" not in path.read_text(encoding="utf-8")

    files = write(f"a/../{EVIL}", databases["hostile"], tmp_path / "report.md", "markdown")
    text = files[0].read_text(encoding="utf-8")
    outside = re.sub(r"(`{3,})yaml\n.*?\n\1", "", text, flags=re.S)
    assert "<script" not in outside


def test_markdown_names_pictures_that_exist_and_are_valid(databases, tmp_path):
    report, *pictures = write("finished", databases["finished"], tmp_path / "report.md", "markdown")
    named = re.findall(r"!\[[^]]*\]\(([^)]+)\)", report.read_text(encoding="utf-8"))

    assert {str(path.relative_to(tmp_path)) for path in pictures} == set(named)
    for path in pictures:
        ElementTree.fromstring(path.read_text(encoding="utf-8"))
