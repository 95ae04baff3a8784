"""Graphs of torch.export and ONNX: five lengths, a decode step from a prompt, and blocks that cannot be exported."""

import importlib.util
import json
import subprocess
import sys
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

SMALL = """
kind: decoder
width: 16
vocabulary: 32
position: rotary
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2, key_value_heads: 1}}}
  - residual: {norm: rms_norm, of: [{convolution: {kernel: 3}}, gated_feed_forward]}
"""
LENGTHS = (1, 5, 24, 61, 100)
CHILD = """
import json, sys
for hidden in ("nas", "searchspace", "kernels", "tuner", "torch"):
    sys.modules[hidden] = None
import numpy, onnxruntime
prompt, decode = (onnxruntime.InferenceSession(f"{sys.argv[1]}/{name}.onnx") for name in ("prompt", "decode"))
found = []
arrays = numpy.load(f"{sys.argv[1]}/expected.npz")
for number in range(len(arrays) // 2):
    tokens, expected = arrays[f"tokens{number}"], arrays[f"logits{number}"]
    whole = prompt.run(None, {"tokens": tokens})[0]
    difference = [float(abs(whole - expected).max())]
    if tokens.shape[1] > 1:
        _, *state = prompt.run(None, {"tokens": tokens[:, :-1]})
        names = [each.name for each in decode.get_inputs()]
        step = decode.run(None, dict(zip(names, [tokens[:, -1:], *state])))[0]
        difference.append(float(abs(step[:, 0] - expected[:, -1]).max()))
    found.append(difference)
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return build(Architecture.parse(SMALL)).eval()


@pytest.fixture(scope="module")
def made(model):
    return graphs.programs(Architecture.parse(SMALL), model.state_dict())


def expected(model):
    """Tokens of every length, and our logits."""
    inputs = [example_inputs(Architecture.parse(SMALL), length)[0] for length in LENGTHS]
    with torch.no_grad():
        return [(tokens, model(tokens)) for tokens in inputs]


def test_programs_are_the_model_at_every_length_and_continue_from_a_prompt(made, model):
    prompt, decode = made.prompt.module(), made.decode.module()
    for tokens, logits in expected(model):
        assert torch.allclose(prompt(tokens)[0], logits, atol=1e-5)
        if tokens.shape[1] > 1:
            _, *state = prompt(tokens[:, :-1])
            assert torch.allclose(decode(tokens[:, -1:], *state)[0][:, 0], logits[:, -1], atol=1e-5)


def test_a_model_without_a_state_has_a_prompt_only():
    architecture = zoo.load("vit", "tiny")
    torch.manual_seed(0)
    model = build(architecture).eval()
    made = graphs.programs(architecture, model.state_dict())
    inputs = example_inputs(architecture, 7, 1)

    assert made.decode is None
    assert "only a decoder" in made.why_no_decode
    with torch.no_grad():
        assert torch.allclose(made.prompt.module()(*inputs), model(*inputs), atol=1e-5)


@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript", "onnxruntime")),
    reason="onnx, onnxscript or onnxruntime is not installed",
)
def test_onnx_runtime_gives_the_same_numbers_in_a_process_of_its_own(made, model, tmp_path):
    for name, content in onnx.written(made).items():
        (tmp_path / name).write_bytes(content)
    arrays = {}
    for number, (tokens, logits) in enumerate(expected(model)):
        arrays |= {f"tokens{number}": tokens.numpy(), f"logits{number}": logits.numpy()}
    np.savez(tmp_path / "expected.npz", **arrays)
    done = subprocess.run([sys.executable, "-c", CHILD, tmp_path], capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    differences = json.loads(done.stdout)
    assert [len(each) for each in differences] == [1, 2, 2, 2, 2]
    assert max(max(each) for each in differences) < 1e-4


@pytest.mark.parametrize(
    ("name", "block"), [("gru", "gru takes one step"), ("reformer", "lsh_attention selects"), ("funnel", "hourglass")]
)
def test_a_block_that_cannot_be_exported_is_named_and_nothing_is_written(name, block, tmp_path):
    architecture = zoo.load(name, "tiny")
    winner = Winner(0, architecture, {}, build(architecture).state_dict)
    for each in ("torch", "onnx"):
        with pytest.raises(UsageError, match=block):
            files.write_folder(winner, tmp_path / "out", ["python", each])
    assert not Path(tmp_path / "out").exists()
