"""Checks formats of an export: each is loaded by its own tool, in a process that cannot import this package.

A check gets the folder of the export, and what to expect: example inputs and outputs of the model, and a text for its
tokenizer. It returns plain numbers, with `difference`, the largest difference of an output, and the weights that it
found: a list of {name: tensor}, one for each part; None if the format does not show them.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from nas.child import Child, Died, Late, can_fork

HIDDEN = ("nas", "searchspace", "kernels", "tuner")
Result = tuple[dict[str, Any], list[dict[str, Any]] | None]


def run(folder: Path, place: Path, names: Sequence[str], seconds: float) -> dict[str, dict[str, Any] | str]:
    """The numbers of each check, or why it failed. place: has `expected.pt`, and gets FORMAT.pt with the weights.

    seconds: of one check. torch is imported once: the checks run in forks.
    """
    import torch  # noqa: F401

    return {name: _of_child(folder, place, name, seconds) for name in names}


def _of_child(folder: Path, place: Path, name: str, seconds: float) -> dict[str, Any] | str:
    child = Child(check, name, folder, place, method="fork" if can_fork() else "spawn", quiet=True)
    try:
        return child.receive(time.monotonic() + seconds)
    except Late:
        return f"it took longer than {seconds} seconds"
    except Died as error:
        return str(error)
    finally:
        child.kill()


def check(parent: Connection, name: str, folder: Path, place: Path) -> None:
    """The target of a child: send the numbers of one check, or its error."""
    import torch

    if name != "yaml":
        sys.modules.update(dict.fromkeys(HIDDEN))  # type: ignore[arg-type]
    try:
        numbers, weights = CHECKS[name](folder, torch.load(place / "expected.pt"))
        if weights is not None:
            torch.save(weights, place / f"{name}.pt")
        parent.send(numbers)
    except BaseException as error:
        parent.send(f"{type(error).__name__}: {error}")


def _yaml(folder: Path, expected: Mapping[str, Any]) -> Result:
    """Rebuild the model from architecture.yaml and model.safetensors with this package, and measure it again."""
    import torch

    import nas
    from nas.exports import header
    from searchspace.cost import Shape
    from searchspace.model.architecture import Architecture
    from searchspace.model.build import cost

    path = folder / "architecture.yaml"
    model = nas.load(folder).model  # first: it runs the user's own blocks
    about, architecture = header.read(path), Architecture.load(path)
    with torch.inference_mode():
        outputs = model(*expected["inputs"])
    shape = header.at_exported_depth(path, Shape(), length=None)
    numbers = {
        "difference": float((outputs - expected["outputs"]).abs().max()),
        "parameters": sum(each.numel() for each in model.parameters()),
        "flops": cost(architecture, shape).numbers()["flops"],
        "hash": architecture.hash,
        "latency": _latency(about.get("latency") or {}, architecture, shape),
    }
    return numbers, [model.state_dict()]


def _latency(then: Mapping[str, Any], architecture: Any, shape: Any) -> dict[str, dict[str, float]]:
    """The recorded latencies and those measured now; empty on another device."""
    if not then:
        return {}
    from nas.errors import UsageError
    from nas.objectives.latency import Latency  # it takes half a second

    found = {}
    for name, each in then.items():
        setting = {key: each[key] for key in ("phase", "batch", "length", "threads")}
        now = Latency(shape, device=each["on"], method="measured", **setting)
        try:
            here = now.predictor.table.device.key
        except UsageError:  # such as that of a GPU that this machine does not have
            continue
        if here == each["device"]["key"]:
            found[name] = {"then": each["milliseconds"], "now": now.latency(architecture).milliseconds}
    return found


def _python(folder: Path, expected: Mapping[str, Any]) -> Result:
    """Load model.py and model.safetensors with torch alone."""
    import torch

    found = importlib.util.spec_from_file_location("model", folder / "model.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    sys.modules["model"] = module
    found.loader.exec_module(module)
    net = module.load_weights(module.model(), str(folder / "model.safetensors"))
    with torch.inference_mode():
        outputs = net(*expected["inputs"])
    parameters = sum(each.numel() for each in net.parameters())
    difference = float((outputs - expected["outputs"]).abs().max())
    return {"difference": difference, "parameters": parameters}, [net.state_dict()]


def _huggingface(folder: Path, expected: Mapping[str, Any]) -> Result:
    """Load the folder `huggingface` with the Auto class of transformers that its config.json names."""
    # a parent that uses transformers hands its own copies of code on
    sys.path[:] = [each for each in sys.path if not (Path(each) / "transformers_modules").exists()]
    with tempfile.TemporaryDirectory() as cache:
        os.environ |= {"HF_HUB_OFFLINE": "1", "HF_MODULES_CACHE": cache}  # read when transformers is imported
        return _transformers(folder / "huggingface", expected)


def _transformers(folder: Path, expected: Mapping[str, Any]) -> Result:
    import torch
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


def _torch(folder: Path, expected: Mapping[str, Any]) -> Result:
    """Run the program of torch.export in the folder `torch`, and the decode step for the last symbol."""
    import torch

    net = torch.export.load(folder / "torch/program.pt2").module()
    parts, decode = [net.state_dict()], folder / "torch/decode.pt2"

    def step(last: Any, *state: Any) -> Any:
        module = torch.export.load(decode).module()
        parts.append(module.state_dict())
        return module(last, *state)

    with torch.inference_mode():
        difference = _difference(net, step if decode.is_file() else None, expected)
    return {"difference": difference, "parameters": sum(each.numel() for each in net.parameters())}, parts


def _onnx(folder: Path, expected: Mapping[str, Any]) -> Result:
    """Run prompt.onnx in the folder `onnx` with ONNX Runtime, and decode.onnx for the last symbol."""
    import onnxruntime
    import torch

    def program(name: str) -> Any:
        session = onnxruntime.InferenceSession(folder / "onnx" / name, providers=["CPUExecutionProvider"])
        names = [each.name for each in session.get_inputs()]

        def call(*inputs: Any) -> list[Any]:
            named = {name: given.numpy() for name, given in zip(names, inputs, strict=True)}
            return [torch.from_numpy(each) for each in session.run(None, named)]

        return call

    decode = program("decode.onnx") if (folder / "onnx/decode.onnx").is_file() else None
    return {"difference": _difference(program("prompt.onnx"), decode, expected)}, None


def _aotinductor(folder: Path, expected: Mapping[str, Any]) -> Result:
    """Run the package of AOTInductor in the folder `aotinductor`."""
    import torch

    package = torch._inductor.aoti_load_package(str(folder / "aotinductor/model.pt2"))
    return {"difference": _difference(package, None, expected)}, None


def _difference(prompt: Any, decode: Any, expected: Mapping[str, Any]) -> float:
    """The largest difference of the output of a program, and of the last symbol by its decode step, if it has one."""
    *source, last = expected["inputs"]
    outputs, found = expected["outputs"], prompt(*expected["inputs"])
    found = found[0] if isinstance(found, tuple | list) else found  # a model that streams also gives its state
    difference = float((found - outputs).abs().max())
    if decode is None:
        return difference
    _, *state = prompt(*source, last[:, :-1])
    return max(difference, float((decode(last[:, -1:], *state)[0] - outputs[:, -1:]).abs().max()))


CHECKS = {
    "yaml": _yaml,
    "python": _python,
    "huggingface": _huggingface,
    "torch": _torch,
    "onnx": _onnx,
    "aotinductor": _aotinductor,
}
