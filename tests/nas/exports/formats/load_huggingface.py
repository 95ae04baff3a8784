"""Loads every folder in a folder with transformers, without this project, and prints what it finds as JSON."""

import gc
import importlib.util
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
CHECK = Path(__file__).resolve().parents[4] / "nas/exports/checks/huggingface.py"
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
    if folder.name == "gru":  # a trainer that accumulates gradients names the number of labels of all batches
        one, four = (float(model(**named, labels=labels, num_items_in_batch=each).loss) for each in (1, 4))
        result["shared"] = one / four
    model.save_pretrained(folder / "again")
    again = auto.from_pretrained(folder / "again", trust_remote_code=True).state_dict()
    result["again"] = sum(not torch.equal(value, again[name]) for name, value in model.state_dict().items())
    if model.can_generate():
        result |= generated(model, inputs, expected["symbols"])
    if folder.name in TEXTS and (folder / "tokenizer.json").is_file():
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
        result["tokens"] = tokenizer(TEXTS[folder.name], add_special_tokens=False)["input_ids"]
        result["decoded"] = tokenizer.decode(result["tokens"])
    if folder.name in ("transformer_decoder", "gru") and importlib.util.find_spec("accelerate"):
        result["trained"] = trained(model, inputs[0])
    if folder.name == "gru":
        result["check"] = checked(folder, expected)
    return result


def checked(folder, expected):
    """What the check of an export finds."""
    found = importlib.util.spec_from_file_location("check_huggingface", CHECK)
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    with tempfile.TemporaryDirectory() as export:
        (Path(export) / "huggingface").symlink_to(folder)
        return module.check(Path(export), {**expected, "text": TEXTS[folder.name]})[0]


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
    if not model.config.is_encoder_decoder:
        result |= padded(model, inputs[0], streams)
    return result


def padded(model, tokens, streams):
    """What follows two prompts of different lengths, each alone and both in one batch that is padded on the left."""
    batch, mask = tokens[:2, :6].clone(), torch.ones(2, 6, dtype=torch.int64)
    batch[1, :4], mask[1, :4] = 0, 0
    options = {"max_new_tokens": 5, "do_sample": False}
    apart = [tokens[:1, :6], tokens[1:2, 4:6]]
    found = {}
    for kind, use, beams in (("cached", streams, 1), ("uncached", False, 1), ("beams", streams, 2)):
        more = {**options, "use_cache": use, "num_beams": beams, "pad_token_id": 0}
        alone = [model.generate(each, attention_mask=torch.ones_like(each), **more)[0, -5:].tolist() for each in apart]
        found[f"padded_{kind}"] = model.generate(batch, attention_mask=mask, **more)[:, -5:].tolist() == alone
    return found


def trained(model, tokens):
    """The steps that a Trainer has done."""
    data = [{"input_ids": row, "labels": row} for row in tokens]
    with tempfile.TemporaryDirectory() as place:
        options = transformers.TrainingArguments(
            place, max_steps=1, per_device_train_batch_size=2, report_to=[], use_cpu=True, disable_tqdm=True
        )
        return transformers.Trainer(model, options, train_dataset=data).train().global_step


print(json.dumps({folder.name: found_in(folder) for folder in sorted(Path(sys.argv[1]).iterdir()) if folder.is_dir()}))
gc.freeze()  # or the end of the process would search them
