"""Compiled templates are kept on disk, and never used for another text or with other options."""

from __future__ import annotations

import jinja2
import pytest

from dashboards.server import compiled
from dashboards.server.compiled import CHECKSUM, Compiled


@pytest.fixture
def page(tmp_path, monkeypatch):
    """Renders `page.html` in an environment of its own, which compiles it only if no file serves."""
    monkeypatch.setattr(compiled, "TEMPLATES", tmp_path)
    monkeypatch.setattr("sys.dont_write_bytecode", False)

    def rendered(text="{% if x %}\nyes {{ x }}{% endif %}", **options):
        (tmp_path / "page.html").write_text(text)
        loader = jinja2.FileSystemLoader(tmp_path)
        made = jinja2.Environment(loader=loader, bytecode_cache=Compiled(**options), **options)
        return made.get_template("page.html").render(x="<")

    return rendered


def kept(folder):
    return list(folder.glob("__pycache__/*.jinja"))


def test_a_template_is_compiled_once(page, tmp_path, monkeypatch):
    first = page(trim_blocks=True)
    assert len(kept(tmp_path)) == 1
    monkeypatch.setattr(jinja2.Environment, "compile", None)
    assert page(trim_blocks=True) == first == "yes <"


def test_another_text_or_option_is_compiled_again(page):
    page()
    assert page("no") == "no"
    assert page() == "\nyes <"
    assert page(autoescape=True) == "\nyes &lt;"
    assert page(trim_blocks=True) == "yes <"


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: whole[:-20],
        lambda whole: b"",
        lambda whole: b"\0" * len(whole),
        lambda whole: whole.replace(b"yes ", b"no: "),
        lambda whole: whole[CHECKSUM:],
    ],
)
def test_a_damaged_file_is_replaced(page, tmp_path, damage):
    page()
    (file,) = kept(tmp_path)
    whole = file.read_bytes()
    file.write_bytes(damage(whole))
    assert page() == "\nyes <"
    assert file.read_bytes() == whole


def test_a_folder_that_cannot_be_written_is_no_error(page, tmp_path):
    (tmp_path / "__pycache__").write_text("a file, so no folder can be made")
    assert page() == page() == "\nyes <"


def test_nothing_is_kept_if_python_keeps_nothing(page, tmp_path, monkeypatch):
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    page()
    assert not kept(tmp_path)
