"""Public implementations of token mixers, installed for one run into a temporary folder."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from torch import Tensor, nn

# The packages with the packages that they import. PyTorch is ours, so their declared dependencies are not installed.
PACKAGES = (
    "performer-pytorch", "linformer", "nystrom-attention", "reformer-pytorch", "local-attention",
    "linear-attention-transformer", "axial-positional-embedding", "product-key-memory", "colt5-attention",
    "hyper-connections", "einops",
)  # fmt: skip


@dataclass(frozen=True)
class Published:
    """The public counterpart of `mixer`. make(dim, heads, length) gives a module [B, T, C] -> [B, T, C] for up to
    `length` positions. fields: the options of our block that make both equivalent. most: the longest sequence that fits
    into memory.
    """

    name: str
    mixer: str
    causal: bool
    make: Callable[[int, int, int], nn.Module]
    fields: dict[str, Any]
    most: int = 1 << 20


@contextmanager
def installed() -> Iterator[str | None]:
    """In this context the packages can be imported. Gives None, or the reason why they cannot."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, *PACKAGES]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            yield "pip: " + (done.stderr.strip().splitlines() or ["no message"])[-1]
            return
        sys.path.insert(0, folder)
        try:
            yield None
        finally:
            sys.path.remove(folder)


def published() -> list[Published]:
    """All pairs, close to the default sizes of the public code. Its windows have one key fewer."""
    pairs = [_recurrent("LSTM", "lstm"), _recurrent("GRU", "gru"), _linformer(), _nystrom()]
    for causal in (False, True):
        pairs += [_performer(causal), _linear(causal), _local(causal), _reformer(causal)]
    return pairs


def _recurrent(layer: str, mixer: str) -> Published:
    class Recurrent(nn.Module):
        def __init__(self, dim: int) -> None:
            super().__init__()
            self.layer = getattr(nn, layer)(dim, dim, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)[0]  # type: ignore[no-any-return]

    return Published(f"torch.nn.{layer}", mixer, True, lambda dim, heads, length: Recurrent(dim), {})


def _linformer() -> Published:
    def make(dim: int, heads: int, length: int) -> nn.Module:
        return _class("linformer", "LinformerSelfAttention")(dim, length, k=128, heads=heads)

    return Published("linformer", "linformer_attention", False, make, {"slots": 128})


def _nystrom() -> Published:
    def make(dim: int, heads: int, length: int) -> nn.Module:
        return _class("nystrom_attention", "NystromAttention")(dim, dim // heads, heads, num_landmarks=64)

    return Published("nystrom-attention", "nystrom_attention", False, make, {"landmarks": 64})


def _performer(causal: bool) -> Published:
    def make(dim: int, heads: int, length: int) -> nn.Module:
        kind = _class("performer_pytorch", "SelfAttention")
        return kind(dim, causal=causal, heads=heads, dim_head=dim // heads, nb_features=256)

    return Published("performer-pytorch", "favor_attention", causal, make, {"features": 256})


def _linear(causal: bool) -> Published:
    def make(dim: int, heads: int, length: int) -> nn.Module:
        kind = _class("linear_attention_transformer.linear_attention_transformer", "SelfAttention")
        return kind(dim, heads, causal=causal)

    # If causal, it keeps a D x D matrix per head and position.
    most = 4096 if causal else 1 << 20
    return Published("linear-attention-transformer", "linear_attention", causal, make, {}, most)


def _local(causal: bool) -> Published:
    def make(dim: int, heads: int, length: int) -> nn.Module:
        kind = _class("local_attention.transformer", "LocalMHA")
        return kind(
            dim=dim, window_size=WINDOW if causal else WINDOW // 2, dim_head=dim // heads, heads=heads, causal=causal,
            exact_windowsize=True, use_rotary_pos_emb=False,
        )  # fmt: skip

    return Published("local-attention", "sliding_window_attention", causal, make, {"window": WINDOW})


def _reformer(causal: bool) -> Published:
    def make(dim: int, heads: int, length: int) -> nn.Module:
        return _class("reformer_pytorch", "LSHSelfAttention")(dim, heads, bucket_size=64, n_hashes=4, causal=causal)

    fields = {"chunk": 64, "rounds": 4, "buckets": None}
    return Published("reformer-pytorch", "lsh_attention", causal, make, fields)


WINDOW = 128


def _class(module: str, name: str) -> Any:
    return getattr(import_module(module), name)
