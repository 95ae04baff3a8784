"""Patches of images, and the Vision Transformer that reads them against torch's own layers."""

import pytest
import torch
from torch.nn import functional as F

from searchspace.backbones.patches import patches
from searchspace.model.build import build

VIT = """
kind: encoder
width: 8
features: 12
classes: 5
class_token: true
pool: first
position: {learned: {length: 7}}
body:
  repeat:
    times: 2
    of:
      - residual: {norm: {layer_norm: {eps: 1.0e-6}}, of: {attention: {heads: 2, bias: true}}}
      - residual: {norm: {layer_norm: {eps: 1.0e-6}}, of: {feed_forward: {activation: gelu}}}
final_norm: {layer_norm: {eps: 1.0e-6}}
"""


def test_a_linear_map_of_patches_is_a_convolution_with_their_stride() -> None:
    images = torch.randn(2, 3, 8, 12, dtype=torch.float64)
    weight, bias = torch.randn(5, 3, 4, 4, dtype=torch.float64), torch.randn(5, dtype=torch.float64)
    expected = F.conv2d(images, weight, bias, stride=4).flatten(2).transpose(1, 2)  # row by row
    torch.testing.assert_close(F.linear(patches(images, 4), weight.flatten(1), bias), expected)


def test_patches_are_unfolded_images() -> None:
    images = torch.randn(2, 3, 8, 12)
    assert patches(images, 2).equal(F.unfold(images, 2, stride=2).transpose(1, 2))
    assert patches(images, 1).shape == (2, 96, 3)


def test_refuses_images_that_patches_do_not_cover() -> None:
    with pytest.raises(ValueError, match="but got 8 x 12 and patches of 5 x 5"):
        patches(torch.randn(1, 3, 8, 12), 5)
    with pytest.raises(ValueError, match=r"but got shape \(3, 8, 12\)"):
        patches(torch.randn(3, 8, 12), 4)


def _vision_transformer(model: torch.nn.Module, images: torch.Tensor) -> torch.Tensor:
    """Convolution, class token, positions, torch's layers, the class token's logits."""
    weight = model.input.weight.view(8, 3, 2, 2)
    x = F.conv2d(images, weight, model.input.bias, stride=2).flatten(2).transpose(1, 2)
    x = torch.cat([model.first.expand(len(x), 1, 8), x], dim=1) + model.position.table
    for outer in zip(list(model.body)[::2], list(model.body)[1::2]):
        attention, feed_forward = (residual.of[0] for residual in outer)
        layer = torch.nn.TransformerEncoderLayer(8, 2, 32, 0.0, "gelu", 1e-6, batch_first=True, norm_first=True)
        layer = layer.double().eval()
        with torch.no_grad():
            for name in ("weight", "bias"):
                query_key_value = torch.cat([getattr(attention.query, name), getattr(attention.key_value, name)])
                getattr(layer.self_attn, f"in_proj_{name}").copy_(query_key_value)
                getattr(layer.self_attn.out_proj, name).copy_(getattr(attention.output, name))
                getattr(layer.linear1, name).copy_(getattr(feed_forward.inner, name))
                getattr(layer.linear2, name).copy_(getattr(feed_forward.output, name))
            for norm, own in zip((layer.norm1, layer.norm2), outer):
                norm.weight.copy_(own.norm.gain)
                norm.bias.copy_(own.norm.bias)
        x = layer(x)
    x = F.layer_norm(x, (8,), model.final_norm.gain, model.final_norm.bias, 1e-6)
    return F.linear(x[:, 0], model.head.weight, model.head.bias)


def test_a_vision_transformer_is_a_convolution_and_torchs_layers() -> None:
    torch.default_generator.manual_seed(0)
    model, images = build(VIT).double().eval(), torch.randn(2, 3, 4, 6, dtype=torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():  # no norm or bias is at its start
            parameter.add_(0.1 * torch.randn_like(parameter))
    torch.testing.assert_close(model(patches(images, 2)), _vision_transformer(model, images), atol=1e-9, rtol=1e-9)


def test_a_vision_transformer_reads_larger_images_once_its_positions_are_resized() -> None:
    model, large = build(VIT).eval(), torch.randn(2, 3, 8, 6)
    with pytest.raises(ValueError, match="beyond the 7 learned positions"):
        model(patches(large, 2))
    model.position.resize((2, 3), (4, 3))
    assert model(patches(large, 2)).shape == (2, 5)
