"""A report is one small file that needs nothing else."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dashboards.sent.content import value_text
from dashboards.sent.write import default_path, write
from nas.cli.app import run
from nas.errors import UsageError
from tests.dashboards.conftest import EVIL, REAL


@pytest.mark.parametrize("name", [*REAL, "new"])
def test_a_report_is_one_file_without_scripts_or_addresses(databases, tmp_path, name):
    (path,) = write(name, databases[name], tmp_path / "report.html", "html")
    text = path.read_text(encoding="utf-8")

    assert not re.findall(r"<(?:script|link|img|iframe|form|input)\b", text)
    assert not re.findall(r"""(?:href|src)=["'](?!#)""", text)
    assert "https://" not in text
    assert path.stat().st_size < 1_000_000


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads in /proc")
def test_a_report_starts_no_threads_which_would_wait_busily(databases, tmp_path):
    count = (
        "import atexit, pathlib; tasks = pathlib.Path('/proc/self/task')"
        "; names = lambda: [each.read_text() for each in tasks.glob('*/comm')]"
        "; atexit.register(lambda: print(sum('jemalloc' not in name for name in names())))"  # which sleeps
    )
    command = [sys.executable, "-c", f"{count}; from nas.cli import main; main()", "report", "finished"]
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_NUM_THREADS")}
    ended = subprocess.run(
        [*command, "-o", tmp_path / "report.html", "--storage", databases["finished"]],
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )

    assert ended.stdout.split() == ["1"]
    assert (tmp_path / "report.html").exists()


def test_a_report_is_valid_html_that_the_keyboard_scrolls(databases, tmp_path):
    html5lib = pytest.importorskip("html5lib")
    (path,) = write("finished", databases["finished"], tmp_path / "report.html", "html")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parser = html5lib.HTMLParser()
        parser.parse(path.read_bytes())
    wide = re.findall(r'<(?:pre|div class="(?:picture|table)")[^>]*>', path.read_text(encoding="utf-8"))

    assert parser.errors == []
    assert {tag[:4] for tag in wide} == {"<pre", "<div"}
    assert [tag for tag in wide if 'tabindex="0"' not in tag] == []


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


@pytest.mark.parametrize(
    ("arguments", "start"),
    [(["a.md"], "# "), (["a.MARKDOWN"], "# "), (["a.html"], "<!"), (["a.md", "--format", "html"], "<!")],
)
def test_the_ending_of_the_file_decides_the_form_unless_an_option_does(
    arguments, start, databases, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        run(["report", "finished", "--storage", databases["finished"], "-o", *arguments])
    assert not ended.value.code
    assert Path(arguments[0]).read_text(encoding="utf-8").startswith(start)


def test_a_report_never_takes_the_place_of_a_database(databases, tmp_path):
    path = tmp_path / "a.db"
    path.write_bytes(Path(databases["finished"]).read_bytes())
    link = tmp_path / "link.html"
    link.symlink_to(path)

    with pytest.raises(UsageError, match="is a database"):
        write("finished", str(path), path, "html")
    with pytest.raises(UsageError, match="symbolic link"):
        write("finished", str(path), link, "html")
    assert path.read_bytes() == Path(databases["finished"]).read_bytes()


@pytest.mark.parametrize("study", ["../a/b", "/etc/x", "..", "$(id)\n", "x" * 500])
def test_the_name_of_a_report_stays_in_its_folder(study):
    path = default_path(study, "html")

    assert path.name == str(path)
    assert path.suffix == ".html"
    assert len(path.name) < 120


def test_text_in_markdown_makes_no_markup():
    assert value_text("![a](http://b)|<c>\x1b&lt;") == "!\\[a](http://b)\\|&lt;c> &amp;lt;"
