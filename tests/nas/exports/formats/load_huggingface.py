"""Loads every folder in a folder with transformers, without this project, and prints what it finds as JSON."""

import gc
import json
import os
import sys
import tempfile
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None
cache = tempfile.TemporaryDirectory()
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": cache.name, "WANDB_DISABLED": "true"}

gc.disable()  # libraries are no garbage

import torch  # noqa: E402
import transformers  # noqa: E402

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
TEXTS = {"transformer_decoder": "naïve  text\n", "gru": "a b  c", "transformer": "w3 w1"}


def found_in(folder):
    config = json.loads((folder / "config.json").read_text())
    names = config.get("auto_map") or [config["tessera_auto_class"]]  # a model of transformers has no code of its own
    auto = getattr(transformers, next(name for name in names if name.startswith("AutoModelFor")))
    model = auto.from_pretrained(folder, trust_remote_code=True).eval()
    expected = torch.load(folder / "expected.pt")
    inputs = expected["inputs"]
    named = {"inputs_embeds": inputs[0]} if inputs[0].is_floating_point() else {"input_ids": inputs[0]}
    if len(inputs) == 2:
        named["decoder_input_ids"] = inputs[1]
    with torch.inference_mode():
        logits = model(**named).logits
    result = {"difference": float((logits - expected["outputs"]).abs().max()), "streams": config.get("streams", True)}
    labels = torch.zeros(2, dtype=torch.int64) if logits.dim() == 2 else inputs[-1]
    loss = model(**named, labels=labels).loss
    loss.backward()
    result["loss"] = float(loss.detach())
    result["special"] = [getattr(model.config, f"{name}_token_id", None) for name in ("bos", "eos", "pad")]
    model.save_pretrained(folder / "again")
    again = auto.from_pretrained(folder / "again", trust_remote_code=True).state_dict()
    result["again"] = sum(not torch.equal(value, again[name]) for name, value in model.state_dict().items())
    if model.can_generate():
        result |= generated(model, inputs, expected["symbols"])
    if folder.name in TEXTS and (folder / "tokenizer.json").is_file():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        result["tokens"] = tokenizer(TEXTS[folder.name], add_special_tokens=False)["input_ids"]
        result["decoded"] = tokenizer.decode(result["tokens"])
    return result


def generated(model, inputs, symbols):
    prompt = inputs[0][:1, :6]
    options = {"attention_mask": torch.ones_like(prompt), "max_new_tokens": 8, "do_sample": False}
    streams = getattr(model.config, "streams", True)
    result = {"symbols": symbols}
    for name, more in {"": {}, "beams_": {"num_beams": 3}}.items():
        for kind, use in {"cached": streams, "uncached": False}.items():
            tokens = model.generate(prompt, use_cache=use, **more, **options)[0].tolist()
            tokens = tokens[1:] if model.config.is_encoder_decoder else tokens[6:]
            end = getattr(model.config, "eos_token_id", None)
            result[f"{name}{kind}"] = tokens[: tokens.index(end)] if end in tokens else tokens
    return result


print(json.dumps({folder.name: found_in(folder) for folder in sorted(Path(sys.argv[1]).iterdir()) if folder.is_dir()}))
gc.freeze()  # or the end of the process would search them
