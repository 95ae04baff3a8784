"""Weights leave as safetensors and load again, tied tables too."""

import pytest
import torch
from safetensors.torch import load

from nas.errors import NasError, UsageError
from nas.exports import export
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
    again.load_state_dict(load(export.packed(model.state_dict())))
    tokens = torch.arange(8).view(1, 8)

    assert torch.equal(model.eval()(tokens), again.eval()(tokens))


def test_one_tensor_under_two_names_is_kept_under_both():
    table = torch.randn(4, 3)
    kept = load(export.packed({"source": table, "target": table, "part": table[:, :2]}))

    assert torch.equal(kept["source"], kept["target"])
    assert torch.equal(kept["part"], table[:, :2])


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    made = export.Export(0, "kind: decoder\n", b"weights")
    (tmp_path / "taken.safetensors").mkdir()

    assert export.write(made, tmp_path / "a.yaml") == [tmp_path / "a.yaml", tmp_path / "a.safetensors"]
    with pytest.raises(NasError, match="Could not write"):
        export.write(made, tmp_path / "taken.yaml")
    with pytest.raises(UsageError, match="is a folder"):
        export.write(made, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} >= {"a.yaml", "a.safetensors"}
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".part")]
