"""Graphs of torch.export and ONNX: five lengths, a decode step from a prompt, and blocks that cannot be exported."""

import importlib.util
import json
import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import torch

from nas.errors import UsageError
from nas.exports import files, graphs
from nas.exports.checking import example_inputs
from nas.exports.formats import onnx
from nas.exports.winner import Winner
from searchspace import zoo
from searchspace.model.architecture import Architecture
from searchspace.model.build import build
from tests.conftest import QUICK

# torch's own operator for a loop uses what torch has deprecated
pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
SMALL = """
kind: decoder
width: 16
vocabulary: 32
position: rotary
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2, key_value_heads: 1}}}
  - residual: {norm: rms_norm, of: [{convolution: {kernel: 3}}, gated_feed_forward]}
"""
LOOPS = """
kind: decoder
width: 16
vocabulary: 32
body:
  - lstm
  - linear_attention: {heads: 2}
  - residual: {of: {favor_attention: {heads: 2, features: 8}}}
"""
WINDOWS = """
kind: decoder
width: 16
vocabulary: 32
position: alibi
body:
  - sliding_window_attention: {heads: 2, window: 5}
  - sparse_attention: {heads: 2, stride: 4, summary: 2, pattern: fixed}
  - sparse_attention: {heads: 2, stride: 4, pattern: strided}
  - residual: {of: {adaptive_span_attention: {heads: 2, span: 8, ramp: 4}}}
  - residual: {of: {relative_attention: {heads: 2, segment: 6, memory: 4}}}
"""
DILATED = """
kind: decoder
width: 16
vocabulary: 32
body: {sliding_window_attention: {heads: 2, window: 5, dilation: 2}}
"""
MODELS = {"keys": SMALL, "loops": LOOPS}
LENGTHS = (1, 5, 24, 38, 61)
CHILD = """
import json, sys
for hidden in ("nas", "searchspace", "kernels", "tuner", "torch"):
    sys.modules[hidden] = None
import numpy, onnxruntime, pathlib


def differences(folder):
    prompt, decode = (onnxruntime.InferenceSession(folder / f"{name}.onnx") for name in ("prompt", "decode"))
    arrays = numpy.load(folder / "expected.npz")
    for number in range(len(arrays) // 2):
        tokens, expected = arrays[f"tokens{number}"], arrays[f"logits{number}"]
        found = [float(abs(prompt.run(None, {"tokens": tokens})[0] - expected).max())]
        if tokens.shape[1] > 1:
            _, *state = prompt.run(None, {"tokens": tokens[:, :-1]})
            names = [each.name for each in decode.get_inputs()]
            step = decode.run(None, dict(zip(names, [tokens[:, -1:], *state])))[0]
            found.append(float(abs(step[:, 0] - expected[:, -1]).max()))
        yield found


print(json.dumps([list(differences(folder)) for folder in pathlib.Path(sys.argv[1]).iterdir()]))
"""


@pytest.fixture(autouse=True)
def no_gradients():
    """PyTorch would trace the gradient of every loop of a program first."""
    with torch.no_grad():
        yield


@pytest.fixture(scope="module")
def models():
    """Two models that stream: one keeps the keys of all positions, one has states of fixed sizes."""
    torch.manual_seed(0)
    return {name: build(Architecture.parse(text)).eval() for name, text in MODELS.items()}


@pytest.fixture(scope="module")
def made(models):
    """Their programs."""
    return {name: graphs.programs(Architecture.parse(text), models[name].state_dict()) for name, text in MODELS.items()}


def expected(model):
    """Tokens of every length, and our logits."""
    inputs = [example_inputs(Architecture.parse(SMALL), length)[0] for length in LENGTHS]
    return [(tokens, model(tokens)) for tokens in inputs]


@pytest.mark.parametrize("name", MODELS)
def test_programs_are_the_model_at_every_length_and_continue_from_a_prompt(name, made, models):
    prompt, decode = made[name].prompt.module(), made[name].decode.module()
    (first, single), *longer = expected(models[name])
    assert torch.allclose(prompt(first)[0], single, atol=1e-5)
    for tokens, logits in longer:
        before, *state = prompt(tokens[:, :-1])
        assert torch.allclose(before, logits[:, :-1], atol=1e-5)
        assert torch.allclose(decode(tokens[:, -1:], *state)[0][:, 0], logits[:, -1], atol=1e-5)


def test_an_encoder_and_a_recurrent_decoder_continue_from_a_target():
    """With attention after each step; `python -m benchmarks.exports` compares the other two of the zoo."""
    architecture = zoo.load("bahdanau_luong", "tiny")
    torch.manual_seed(0)
    model = build(architecture).eval()
    made = graphs.programs(architecture, model.state_dict())
    source, target = example_inputs(architecture, 11)
    _, *state = made.prompt.module()(source, target[:, :5])
    outs = []
    for place in range(5, 11):
        step, *state = made.decode.module()(target[:, place : place + 1], *state)
        outs.append(step)
    assert torch.allclose(torch.cat(outs, dim=1), model(source, target)[:, 5:], atol=1e-5)


def test_windows_are_masks_in_a_graph_and_have_no_decode_step():
    torch.manual_seed(0)
    model = build(Architecture.parse(WINDOWS)).eval()
    made = graphs.programs(Architecture.parse(WINDOWS), model.state_dict())
    assert made.decode is None
    assert "sliding_window_attention, sparse_attention" in made.why_no_decode
    for tokens, logits in expected(model)[1:]:  # torch guards against one position, which PyTorch lays out otherwise
        assert torch.allclose(made.prompt.module()(tokens), logits, atol=1e-5)


def test_a_program_that_holds_for_some_lengths_only_is_rejected():
    """ONNX Runtime would give other numbers at other lengths without saying so."""
    architecture = Architecture.parse(DILATED)
    with pytest.raises(UsageError, match=r"sliding_window_attention\): it does not hold for \d+ positions"):
        graphs.programs(architecture, build(architecture).state_dict())


def test_a_model_without_a_state_has_a_prompt_only():
    architecture = Architecture.parse(zoo.load("vit", "tiny").text().replace("times: 3", "times: 1"))
    torch.manual_seed(0)
    model = build(architecture).eval()
    made = graphs.programs(architecture, model.state_dict())
    inputs = example_inputs(architecture, 7, 1)

    assert made.decode is None
    assert "an encoder" in made.why_no_decode
    assert torch.allclose(made.prompt.module()(*inputs), model(*inputs), atol=1e-5)


@pytest.fixture
def operators_are_read_once(monkeypatch):
    """PyTorch reads the source of every ONNX operator again for each graph. If a version does not, nothing changes."""
    with suppress(ImportError, AttributeError):
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        monkeypatch.setattr(ONNXRegistry, "from_torchlib", staticmethod(cache(ONNXRegistry.from_torchlib)))


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="onnx, onnxscript or onnxruntime is not installed",
)
@pytest.mark.usefixtures("operators_are_read_once")
def test_onnx_runtime_gives_the_same_numbers_in_a_process_of_its_own(made, models, tmp_path):
    for name, programs in made.items():
        (tmp_path / name).mkdir()
        for file, content in onnx.written(programs).items():
            (tmp_path / name / file).write_bytes(content)
        arrays = {}
        for number, (tokens, logits) in enumerate(expected(models[name])):
            arrays |= {f"tokens{number}": tokens.numpy(), f"logits{number}": logits.numpy()}
        np.savez(tmp_path / name / "expected.npz", **arrays)
    done = subprocess.run([sys.executable, "-c", QUICK + CHILD, tmp_path], capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    for differences in json.loads(done.stdout):
        assert [len(each) for each in differences] == [1, 2, 2, 2, 2]
        assert max(max(each) for each in differences) < 1e-4


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("compressive_transformer", "compressive_attention divides"),
        ("reformer", "lsh_attention selects"),
        ("funnel", "hourglass"),
    ],
)
def test_a_block_that_cannot_be_exported_is_named_and_nothing_is_written(name, block, tmp_path):
    architecture = zoo.load(name, "tiny")
    winner = Winner(0, architecture, {}, build(architecture).state_dict)
    for each in ("torch", "onnx"):
        with pytest.raises(UsageError, match=block):
            files.write_folder(winner, tmp_path / "out", ["python", each])
    assert not Path(tmp_path / "out").exists()


def test_the_page_has_a_row_for_every_model_and_names_what_is_rejected():
    page = (Path(__file__).resolve().parents[4] / "docs/exports.md").read_text()
    rows = {line.split("`")[1]: line for line in page.splitlines() if line.startswith("| `") and line.count("|") == 7}
    assert sorted(rows) == sorted(zoo.names())
    for name, row in rows.items():
        try:
            graphs.check(zoo.load(name, "tiny"))
        except UsageError as error:
            reason = str(error).partition("operators: ")[2].partition(",")[0]
            assert row.endswith(f"| no: {reason} | no: {reason} |"), name
        else:
            assert "no: " not in row, name
        assert "DIFFERS" not in row, name
