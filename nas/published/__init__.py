"""Layouts: the names and shapes of weights in public implementations, one layout a file. `nas.testing` reads them."""

from __future__ import annotations

from collections.abc import Mapping

from nas.published import (
    bert,
    bigbird,
    funnel,
    gpt2,
    llama,
    longformer,
    nystromformer,
    reformer,
    torch_transformer,
    vit,
)
from nas.published.layout import Layout

LAYOUTS: Mapping[str, Layout] = {
    "bert": bert.LAYOUT,
    "bigbird": bigbird.LAYOUT,
    "funnel": funnel.LAYOUT,
    "gpt2": gpt2.LAYOUT,
    "llama": llama.LAYOUT,
    "longformer": longformer.LAYOUT,
    "nystromformer": nystromformer.LAYOUT,
    "reformer": reformer.LAYOUT,
    "torch_transformer": torch_transformer.LAYOUT,
    "vit": vit.LAYOUT,
}
