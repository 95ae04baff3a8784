"""Writes the table of export formats and models into docs/exports.md: `python -m benchmarks.exports [MODEL ...]`.

Every model of the zoo at its tiny size goes through every format. The result is compared with the model: the Python
file in this process, the Hugging Face folders in a process without this package, the graphs at five lengths.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from nas.errors import NasError
from nas.exports import graphs
from nas.exports.bundle import bundled
from nas.exports.checking import example_inputs
from nas.exports.formats.huggingface import folder
from nas.exports.formats.onnx import written
from nas.exports.winner import Winner
from nas.tasks.vocabulary import Words
from searchspace import zoo
from searchspace.model.build import build

PAGE = Path(__file__).resolve().parent.parent / "docs/exports.md"
MARK = "<!-- written by benchmarks/exports.py -->"
LENGTHS = (2, 7, 24, 61, 128)
TOLERANCE = 1e-4
FORMATS = ("yaml, safetensors", "python", "huggingface", "torch", "onnx")


def main(names: list[str]) -> None:
    """Measure the models called `names`, or all of them, and replace their rows in the page."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as place:
        winners = {name: _winner(name) for name in names or zoo.names()}
        loaded = _hugging_face(winners, Path(place))
        for name, winner in winners.items():
            _replace(name, _row(name, winner, loaded[name]))


def _replace(name: str, row: str) -> None:
    """Put the row of a model into the table."""
    before, _, table = PAGE.read_text(encoding="utf-8").partition(MARK)
    rows = {line.split("`")[1]: line for line in table.splitlines() if line.startswith("| `")} | {name: row}
    head = f"| model | {' | '.join(FORMATS)} |\n|---|{'---|' * len(FORMATS)}"
    text = "\n".join([head, *(rows[each] for each in sorted(rows))])
    PAGE.write_text(f"{before}{MARK}\n\n{text}\n", encoding="utf-8")


def _winner(name: str) -> Winner:
    torch.manual_seed(0)
    architecture = zoo.load(name, "tiny")
    model = build(architecture).eval()
    about: dict[str, Any] = {}
    if architecture.root.name == "encoder_decoder":
        words = [f"w{n}" for n in range(architecture.configured.config.vocabulary - 2)]
        about["vocabulary"] = Words(words, ["start", "end"]).to_dict()
    return Winner(0, architecture, about, model.state_dict)


def _row(name: str, winner: Winner, hugging_face: str) -> str:
    model = build(winner.architecture).eval()
    model.load_state_dict(dict(winner.weights()))
    cells = ["yes", _python(winner, model), hugging_face]
    try:
        made = graphs.programs(winner.architecture, winner.weights())
    except NasError as error:
        reason = str(error).partition("operators: ")[2].partition(". The formats")[0] or str(error)
        cells += [f"no: {reason.partition(',')[0]}"] * 2
    else:
        cells += [_compared(winner, model, made.prompt.module(), made), _onnx(winner, model, made)]
    print(name, cells, flush=True)
    return f"| `{name}` | " + " | ".join(cells) + " |"


def _python(winner: Winner, model: Any) -> str:
    module = types.ModuleType(f"bundle_{winner.architecture.short}")
    sys.modules[module.__name__] = module
    exec(compile(bundled(winner.architecture), "model.py", "exec"), module.__dict__)
    theirs = module.model().eval()
    theirs.load_state_dict(dict(winner.weights()))
    inputs = example_inputs(winner.architecture)
    with torch.no_grad():
        return _said(float((theirs(*inputs) - model(*inputs)).abs().max()))


def _compared(winner: Winner, model: Any, call: Callable[..., Any], made: Any) -> str:
    """A cell of the table: the largest difference over all lengths, and the lengths that work if not all do."""
    worst, taken = 0.0, []
    for length in LENGTHS:
        inputs = example_inputs(winner.architecture, length)
        try:
            with torch.no_grad():
                expected, found = model(*inputs), call(*inputs)
        except (AssertionError, RuntimeError, ValueError, IndexError):
            continue
        found = found[0] if isinstance(found, tuple | list) else found
        worst, taken = max(worst, float((found - expected).abs().max())), [*taken, length]
    if not taken:
        return "no: it runs at none of the lengths"
    step = "" if getattr(made, "decode", None) is None else ", with a decode step"
    return _said(worst) + step + ("" if len(taken) == len(LENGTHS) else f", {taken[0]} to {taken[-1]} positions")


def _onnx(winner: Winner, model: Any, made: graphs.Programs) -> str:
    import onnxruntime

    try:
        files = written(made)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        session = onnxruntime.InferenceSession(files["prompt.onnx"], options)
    except Exception as error:
        return f"no: {' '.join(str(error).split())[:80]}"
    names = [each.name for each in session.get_inputs()]

    def call(*inputs: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(session.run(None, dict(zip(names, (each.numpy() for each in inputs))))[0])

    said = _compared(winner, model, call, None)
    return said + (", with a decode step" if "decode.onnx" in files else "")


def _hugging_face(winners: dict[str, Winner], place: Path) -> dict[str, str]:
    for name, winner in winners.items():
        (place / name).mkdir()
        for file, content in folder(winner).items():
            (place / name / file).write_bytes(content)
        inputs = example_inputs(winner.architecture)
        model = build(winner.architecture).eval()
        model.load_state_dict(dict(winner.weights()))
        with torch.no_grad():
            torch.save({"inputs": inputs, "outputs": model(*inputs), "symbols": []}, place / name / "expected.pt")
    script = Path(__file__).resolve().parent.parent / "tests/nas/exports/formats/load_huggingface.py"
    done = subprocess.run([sys.executable, script, place], capture_output=True, text=True, cwd=place, env=os.environ)
    if done.returncode:
        raise NasError(done.stderr[-2000:])
    found = json.loads(done.stdout.splitlines()[-1])
    return {name: _said(each["difference"]) + _generates(each) for name, each in found.items()}


def _generates(found: dict[str, Any]) -> str:
    if "cached" not in found:
        return ""
    same = found["cached"] == found["uncached"] and found["beams_cached"] == found["beams_uncached"]
    return ", generates" + (" with a cache" if found["streams"] else "") + ("" if same else " (differs)")


def _said(difference: float) -> str:
    return f"{'yes' if difference < TOLERANCE else 'DIFFERS'}, {difference:.0e}"


if __name__ == "__main__":
    main(sys.argv[1:])
