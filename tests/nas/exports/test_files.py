"""Weights leave as safetensors and load again, tied tables too."""

import pytest
import torch
from safetensors.torch import load

from nas.errors import NasError, UsageError
from nas.exports import files
from nas.exports.formats.safetensors import packed
from nas.exports.registry import registry
from nas.exports.winner import Winner
from searchspace.model.architecture import Architecture
from searchspace.model.build import build

TIED = """
kind: decoder
width: 16
vocabulary: 32
tie_embeddings: {tied}
body:
  - repeat: {{times: 2, share_weights: true, of: [residual: {{of: {{attention: {{heads: 2}}}}}}]}}
"""


@pytest.mark.parametrize("tied", ["true", "false"])
def test_weights_survive_the_trip(tied):
    architecture = Architecture.parse(TIED.format(tied=tied))
    model, again = build(architecture), build(architecture)
    again.load_state_dict(load(packed(model.state_dict())))
    tokens = torch.arange(8).view(1, 8)

    assert torch.equal(model.eval()(tokens), again.eval()(tokens))


def test_one_tensor_under_two_names_is_kept_under_both():
    table = torch.randn(4, 3)
    kept = load(packed({"source": table, "target": table, "part": table[:, :2]}))

    assert torch.equal(kept["source"], kept["target"])
    assert torch.equal(kept["part"], table[:, :2])


@pytest.fixture
def winner():
    architecture = Architecture.parse(TIED.format(tied="true"))
    return Winner(3, architecture, {"study": "s", "trial": 3}, build(architecture).state_dict)


def test_every_format_writes_files_that_load_again(winner, tmp_path):
    graphs = {"torch", "onnx", "aotinductor"}  # seconds each; they have tests of their own
    written = files.write(winner, tmp_path / "a.yaml", [name for name in registry.names() if name not in graphs])

    assert tmp_path / "a.yaml" in written
    assert tmp_path / "a.safetensors" in written
    assert Architecture.load(tmp_path / "a.yaml") == winner.architecture
    assert (tmp_path / "a.yaml").read_text().startswith("# study: s\n# trial: 3\n")
    build(winner.architecture).load_state_dict(load((tmp_path / "a.safetensors").read_bytes()))


def test_a_file_is_written_whole_or_not_at_all(winner, tmp_path):
    (tmp_path / "taken.safetensors").mkdir()

    with pytest.raises(UsageError, match=r"taken.safetensors is a folder"):
        files.write(winner, tmp_path / "taken.yaml", ["yaml", "safetensors"])
    with pytest.raises(NasError, match="Could not write"):
        files.write(winner, tmp_path / "nowhere" / "a.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        files.write(winner, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["taken.safetensors"]


def test_nothing_is_written_if_one_format_fails(winner, tmp_path):
    with pytest.raises(UsageError, match=r"No export format is called 'safetensor'\. Did you mean 'safetensors'"):
        files.write(winner, tmp_path / "a.yaml", ["yaml", "safetensor"])
    with pytest.raises(UsageError, match=r"go into a\.safetensors next to it"):
        files.write(winner, tmp_path / "a.safetensors", ["yaml", "safetensors"])
    assert not list(tmp_path.iterdir())
