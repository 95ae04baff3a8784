"""Loads the folder `huggingface` with the Auto class of transformers that its config.json names."""

import json
import os
import sys
import tempfile
from pathlib import Path

for hidden in ("nas", "searchspace", "kernels", "tuner"):
    sys.modules[hidden] = None  # type: ignore[assignment]
sys.path.pop(0)  # this folder, whose files have the names of libraries
cache = tempfile.TemporaryDirectory()
os.environ |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": cache.name}

import torch  # noqa: E402
import transformers  # noqa: E402

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
folder, expected = Path(sys.argv[1]) / "huggingface", torch.load(sys.argv[2])
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
result = {"difference": float((outputs - expected["outputs"]).abs().max())}
result["parameters"] = sum(each.numel() for each in model.parameters())
torch.save([model.state_dict()], sys.argv[3])
if (folder / "tokenizer.json").is_file():
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
    result["symbols"] = tokenizer(expected["text"], add_special_tokens=False)["input_ids"]
print(json.dumps(result))
