"""One file of Python is the model: its modules unchanged, equal outputs and gradients, and torch only."""

import importlib
import inspect
import subprocess
import sys
import types

import pytest
import torch

from nas.exports.bundle import bundled
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
CHILD = """
import sys
for hidden in ("nas", "searchspace", "kernels", "tuner", "triton", "numpy"):
    sys.modules[hidden] = None
import torch, model
operators = torch._C._dispatch_get_all_op_names()
assert not [each for each in operators if each.startswith("tessera")], "it registers operators of ours"
net = model.load_weights(model.model(), "model.safetensors")
logits = net(torch.arange(8).view(1, 8))
compiled = torch.compile(net, fullgraph=True, backend="eager")(torch.arange(8).view(1, 8))
assert torch.equal(logits, compiled)
torch.save(logits, "logits.pt")
"""


def loaded(architecture):
    """The module of the file, executed."""
    module = types.ModuleType(f"exported_{architecture.short}")
    sys.modules[module.__name__] = module  # its own modules are below it
    exec(compile(bundled(architecture), "model.py", "exec"), module.__dict__)
    return module


def pair(architecture):
    """Our model, and that of the file with the same weights."""
    torch.manual_seed(0)
    ours = build(architecture).eval()
    module = loaded(architecture)
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
    for piece in tokens.split(5, dim=1):
        one, other = ours(piece, Context(streams=state)), theirs(piece, module.Context(streams=kept))
        assert torch.allclose(one, other, atol=1e-5)


def test_the_file_holds_the_modules_of_the_blocks_in_use_unchanged():
    sources = loaded(Architecture.parse(SEVERAL)).SOURCES

    assert "https://arxiv.org/abs/1406.1078" in sources["searchspace.primitives.recurrence.gru"]
    assert not [name for name in sources if "lstm" in name or "linear_attention" in name or "triton" in name]
    for name in sources.keys() - {"kernels.dispatch"}:
        assert sources[name] == inspect.getsource(importlib.import_module(name)), name


def test_the_file_needs_torch_only_and_loads_its_weights(tmp_path):
    architecture = Architecture.parse(SEVERAL)
    model = build(architecture).eval()
    (tmp_path / "model.py").write_text(bundled(architecture))
    (tmp_path / "model.safetensors").write_bytes(packed(model.state_dict()))
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, cwd=tmp_path)

    assert done.returncode == 0, done.stderr[-3000:]
    assert torch.allclose(torch.load(tmp_path / "logits.pt"), model(torch.arange(8).view(1, 8)), atol=1e-5)
