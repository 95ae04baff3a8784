"""One file of Python is the model: equal outputs and gradients, only its blocks, and clean to a linter."""

import subprocess
import sys
import types

import pytest
import torch

from nas.exports.bundle.construction import bundled
from nas.exports.checking import example_inputs
from nas.exports.formats.safetensors import packed
from searchspace import zoo
from searchspace.contract import Context, Streams
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

SEVERAL = """
kind: decoder
width: 16
vocabulary: 32
body:
  - residual: {norm: rms_norm, of: {attention: {heads: 2, dropout: 0.1}}}
  - repeat: {times: 3, share_weights: true, of: [residual: {of: gated_feed_forward}]}
  - residual: {of: {parallel: {of: [gru, [convolution: {kernel: 3}]]}}}
"""
SAMPLE = ["transformer_modern", "transformer", "seq2seq_lstm", "reformer", "funnel_shared", "universal_transformer"]
SAMPLE += ["long_short_transformer", "vit"]


def loaded(architecture):
    """The module of the file, executed, and its text."""
    text = bundled(architecture)
    module = types.ModuleType(f"exported_{architecture.short}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile(text, "model.py", "exec"), module.__dict__)
    return module, text


def pair(architecture):
    """Our model, and that of the file with the same weights."""
    torch.manual_seed(0)
    ours = build(architecture).eval()
    module, _ = loaded(architecture)
    theirs = module.model().eval()
    theirs.load_state_dict(ours.state_dict())
    return ours, theirs, module


@pytest.mark.parametrize("name", SAMPLE)
def test_outputs_and_gradients_are_those_of_the_model(name):
    architecture = zoo.load(name, "tiny")
    ours, theirs, _ = pair(architecture)
    inputs = example_inputs(architecture)
    for model in (ours, theirs):
        model(*inputs).square().sum().backward()

    assert torch.allclose(ours(*inputs), theirs(*inputs), atol=1e-5)
    expected = {key: value.grad for key, value in ours.named_parameters()}
    for key, value in theirs.named_parameters():
        assert (value.grad is None) == (expected[key] is None), key
        if value.grad is not None:
            assert torch.allclose(value.grad, expected[key], rtol=1e-3, atol=1e-4 * expected[key].abs().max() + 1e-8)


def test_a_model_that_streams_streams_from_the_file():
    ours, theirs, module = pair(Architecture.parse(SEVERAL))
    tokens = torch.arange(12).view(1, 12)
    kept, state = module.Streams(), Streams()
    pieces = [
        (ours(piece, Context(streams=state)), theirs(piece, module.Context(streams=kept)))
        for piece in tokens.split(5, dim=1)
    ]

    for one, other in pieces:
        assert torch.allclose(one, other, atol=1e-5)
    assert kept.nbytes() == state.nbytes()


def test_the_file_holds_the_blocks_in_use_and_their_sources():
    _, text = loaded(Architecture.parse(SEVERAL))

    assert "class GRU(" in text
    assert "https://arxiv.org/abs/1406.1078" in text
    for absent in ("class Lstm", "class LinearAttention", "triton", "tuned", "def cost(", "Capabilities", "plain()"):
        assert absent not in text


def test_the_file_needs_torch_only_and_loads_its_weights(tmp_path):
    architecture = Architecture.parse(SEVERAL)
    ours, _, module = pair(architecture)
    (tmp_path / "model.safetensors").write_bytes(packed(ours.state_dict()))
    theirs = module.load_weights(module.model(), str(tmp_path / "model.safetensors"))
    tokens = torch.arange(8).view(1, 8)
    imported = [line for line in loaded(architecture)[1].splitlines() if line.startswith(("import", "from"))]

    assert torch.allclose(ours(tokens), theirs(tokens), atol=1e-5)
    outside = {line.split()[1].partition(".")[0] for line in imported}
    assert outside - sys.stdlib_module_names == {"torch"}


def test_the_files_pass_a_linter(tmp_path):
    for name in SAMPLE:
        (tmp_path / f"{name}.py").write_text(loaded(zoo.load(name, "tiny"))[1])
    found = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--select", "E4,E7,E9,F,I,UP,B006", str(tmp_path)],
        capture_output=True,
        text=True,
    )

    assert found.returncode == 0, found.stdout
