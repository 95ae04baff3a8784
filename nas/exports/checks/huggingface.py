"""Loads the folder `huggingface` with the Auto class of transformers that its config.json names."""

import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch


def check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    """The difference, the parameters, and the symbols of the text by the tokenizer. See `nas.exports.checks`."""
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": cache}  # read when transformers is imported
        return _check(folder / "huggingface", expected)


def _check(folder: Path, expected: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, torch.Tensor]]]:
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    config = json.loads((folder / "config.json").read_text())
    names = [name for name in config.get("auto_map", {}) if name.startswith("AutoModelFor")]
    if "auto_map" not in config:
        names = [config["tessera_auto_class"]]
    auto = getattr(transformers, (names or ["AutoModel"])[0])
    model = auto.from_pretrained(folder, trust_remote_code="auto_map" in config).eval()
    inputs = expected["inputs"]
    named = {"inputs_embeds": inputs[0]} if inputs[0].is_floating_point() else {"input_ids": inputs[0]}
    if len(inputs) > 1:
        named["decoder_input_ids"] = inputs[1]
    with torch.inference_mode():
        found = model(**named)
    outputs = found.logits if "logits" in found else found[0]
    numbers: dict[str, Any] = {"difference": float((outputs - expected["outputs"]).abs().max())}
    numbers["parameters"] = sum(each.numel() for each in model.parameters())
    if (folder / "tokenizer.json").is_file():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        numbers["symbols"] = tokenizer(expected["text"], add_special_tokens=False)["input_ids"]
    return numbers, [model.state_dict()]
