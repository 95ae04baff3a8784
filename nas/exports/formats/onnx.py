"""ONNX graphs: the prompt, and a decode step with the state as inputs and outputs."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import logging
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nas.errors import NasError
from nas.exports.graphs import Programs, check, programs
from nas.exports.header import inside
from nas.exports.registry import export_format
from nas.exports.winner import Winner

FOLDER = "onnx"
NEEDED = ("onnx", "onnxscript")
OPSET = 25  # ONNX Runtime 1.32 runs it


@export_format("onnx")
class Onnx:
    """prompt.onnx and, if the model keeps a state, decode.onnx. Batch and length are dynamic axes."""

    def files(self, winner: Winner, path: Path) -> Mapping[Path, bytes]:
        """Raises UsageError that names a block which cannot be exported, NasError if onnx is not installed."""
        check(winner.architecture)
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            raise NasError(f"The format onnx needs {' and '.join(missing)}: pip install 'tessera-nas[exports]'.")
        made = programs(winner.architecture, winner.weights())
        return {inside(path, FOLDER, name): content for name, content in written(made).items()}


def written(made: Programs) -> dict[str, bytes]:
    """The content of each graph by the name of its file."""
    outputs = ["logits", *(f"{name}_next" for name in made.states)]
    found = {"prompt.onnx": _graph(made.prompt, list(made.inputs), _outputs(made, outputs))}
    if made.decode is not None:
        found["decode.onnx"] = _graph(made.decode, ["token", *made.states], outputs)
    return found


def _outputs(made: Programs, outputs: list[str]) -> list[str]:
    """The prompt gives the first state: its outputs have the names of the inputs of the decode step."""
    return ["logits", *made.states] if made.states else outputs[:1]


def _graph(program: Any, inputs: list[str], outputs: list[str]) -> bytes:
    import torch

    levels = {name: logging.getLogger(name).level for name in ("torch.onnx", "onnxscript")}
    for name in levels:
        logging.getLogger(name).setLevel(logging.ERROR)
    try:
        # without gradients, because their trace of a loop would keep numbers that ONNX cannot hold
        with torch.no_grad(), warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            made = torch.onnx.export(
                program,
                input_names=inputs,
                output_names=outputs,
                opset_version=OPSET,
                dynamo=True,
                external_data=False,
                verbose=False,
            )
    finally:
        for name, level in levels.items():
            logging.getLogger(name).setLevel(level)
    assert made is not None  # it is None only for the exporter before dynamo
    return made.model_proto.SerializeToString()
