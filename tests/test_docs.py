"""Every link in every page leads somewhere: files exist, and so do the headings that anchors name."""

import re
import subprocess
from pathlib import Path

import pytest

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)|<img[^>]*src=\"([^\"]+)\"")
GLOSSARY = ["space", "point", "architecture", "study", "trial", "rung", "unit", "arm", "operation", "problem"]
GLOSSARY += ["implementation", "configuration"]


@pytest.fixture(scope="module")
def pages(root):
    """The text of every Markdown page by its path, code blocks left out."""
    names = subprocess.run(["git", "ls-files", "*.md"], cwd=root, capture_output=True, text=True)
    paths = [root / name for name in names.stdout.split()] or sorted(root.glob("*.md")) + sorted(root.glob("docs/*.md"))
    return {path: re.sub(r"```.*?```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL) for path in paths}


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, and of bold run-in headings such as **A cluster.**"""
    headings = re.findall(r"^#+ (.*)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_leads_somewhere(pages, root):
    broken = []
    for path, text in pages.items():
        for target in (next(filter(None, found)) for found in LINK.findall(text)):
            file, _, anchor = target.partition("#")
            if "://" in target or target.startswith("mailto:"):
                continue
            place = path if not file else (path.parent / file)
            if not place.exists():
                broken.append(f"{path.relative_to(root)}: {target}")
            elif anchor and place.suffix == ".md" and anchor not in anchors(place.read_text(encoding="utf-8")):
                broken.append(f"{path.relative_to(root)}: {target} (no such heading)")

    assert not broken, "\n".join(broken)


def test_every_page_of_the_docs_is_on_the_index(root):
    index = (root / "docs" / "README.md").read_text(encoding="utf-8")
    missing = [
        path.name for path in (root / "docs").glob("*.md") if path.name != "README.md" and path.name not in index
    ]

    assert not missing, f"docs/README.md does not link to {', '.join(missing)}"


@pytest.mark.parametrize("word", GLOSSARY)
def test_the_glossary_defines(word, root):
    assert re.search(rf"^\| {word} \|", (root / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)


def test_pages_show_no_private_path(pages):
    assert not [str(path) for path, text in pages.items() if str(Path.home()) + "/" in text]


def test_the_python_of_the_readme_and_of_operations_works(root, tmp_path, forked):
    """As it stands, with a search file whose budget is smaller."""
    text = "".join((root / page).read_text(encoding="utf-8") for page in ("README.md", "docs/operations.md"))
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    (tmp_path / "examples").mkdir()
    small = (root / "examples" / "first.yaml").read_text(encoding="utf-8")
    small = small.replace("steps: 60", "steps: 1").replace("trials: 9", "trials: 2")
    small += "runner: {inline: {process: false}}\n"  # the process of its own that trials have takes seconds to start
    (tmp_path / "examples" / "first.yaml").write_text(small, encoding="utf-8")
    code = "def train_and_score(architecture, steps):\n    return 1.0 * steps\n\n\n" + "\n".join(blocks)
    done = forked(code, folder=tmp_path)

    assert len(blocks) == 2
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("<Result of study 'nine_small_models': best trial")
    assert done.stdout.rstrip().endswith("torch.Size([1, 16, 256])")
