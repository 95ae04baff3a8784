"""Every command and every piece of Python of docs/tutorial.md runs, in their order."""

import importlib
import importlib.util
import json
import re

import pytest

from tests.conftest import FORGET

NEEDED = ("transformers", "onnx", "onnxscript", "onnxruntime")
HEAD = """
import shlex
from nas.cli.app import run

def call(line):
    try:
        run(shlex.split(line))
    except SystemExit as ended:
        if ended.code:
            raise RuntimeError(line) from None
"""
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in NEEDED), reason=f"needs {', '.join(NEEDED)}")
@pytest.mark.timeout(900)  # the machine may be busy
def test_the_tutorial_runs_from_texts_to_a_hugging_face_folder(root, tmp_path, forked, monkeypatch):
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    for name in (*NEEDED, "transformers.modeling_utils"):
        importlib.import_module(name)  # once: both forks below need most of it
    environment = {"PYTHONPATH": str(root)}
    ours, theirs = [HEAD], ""
    for language, text in BLOCK.findall((root / "docs/tutorial.md").read_text(encoding="utf-8")):
        if language == "yaml":
            (tmp_path / "search.yaml").write_text(text)
        elif "sys.modules[hidden] = None" in text:
            theirs = text  # in a process that has none of this package
        else:
            ours.append(f"exec({text!r}, {{}})" if language == "python" else commands(text))
    made = forked("\n".join(ours), folder=tmp_path, **environment)
    assert made.returncode == 0, f"{made.stdout}\n{made.stderr[-3000:]}"
    done = forked(FORGET + theirs, folder=tmp_path, **environment)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-3000:]}"

    card = (tmp_path / "exported/README.md").read_text()
    assert len(json.loads((tmp_path / "trained/training.json").read_text())["points"]) == 4
    assert all(f"| {name} | passed |" in card for name in ("yaml", "python", "huggingface", "onnx"))
    assert len((tmp_path / "trials.csv").read_text().splitlines()) > 4


def commands(text: str) -> str:
    """Python that runs the lines `nas ...` one after the other, and ends with the first that fails."""
    lines = [line.removeprefix("nas ") for line in text.splitlines() if line.startswith("nas ")]
    return "\n".join(f"call({line!r})" for line in lines)
