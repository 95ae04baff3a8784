"""The model card of an exported folder: what the model is, where it comes from, how good it is and what was checked."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import yaml

from nas.exports.checking import LATENCY, OUTPUTS, Checked
from nas.exports.winner import Winner

MEANING = {
    "architecture.yaml": "the architecture, with its lineage in the header; `nas.load` and `nas train` read it",
    "model.safetensors": "the trained weights",
    "model.py": "the model as one file that needs torch only",
    "huggingface": "a folder for the Auto classes of transformers",
    "torch": "programs of torch.export: the prompt, and a decode step with its state",
    "onnx": "ONNX graphs: the prompt, and a decode step with its state",
    "kernels.lock.json": "the tuned choices of kernels; $NAS_KERNEL_LOCK serves them",
}


def card(winner: Winner, files: Iterable[str], checked: Sequence[Checked] | None, latency: float = LATENCY) -> str:
    """The text of README.md. checked: None if the check was left out. latency: the tolerance of the check."""
    origin = winner.origin
    parts = [_front(winner), f"# {_title(winner)}", _about(winner), _files(files), _results(origin)]
    parts += [_training(origin), _checks(checked, latency), _yaml("Lineage", origin.get("lineage"))]
    parts += [_yaml("Environment", origin.get("environment")), _said("Kernels", origin.get("kernels"))]
    return "\n\n".join(each for each in parts if each) + "\n"


def _front(winner: Winner) -> str:
    about = {"license": winner.origin.get("licence") or "unknown", "library_name": "transformers", "tags": ["tessera"]}
    return "---\n" + yaml.safe_dump(about, sort_keys=False) + "---"


def _title(winner: Winner) -> str:
    study = winner.origin.get("study")
    return f"{study}, {winner.name}" if study else f"Architecture {winner.architecture.short}"


def _about(winner: Winner) -> str:
    costs = dict(winner.origin.get("costs") or {})
    sizes = f" It has {costs['parameters']:,} parameters." if "parameters" in costs else ""
    licence = winner.origin.get("licence") or "not stated"
    return (
        f"A {winner.architecture.root.name.replace('_', '-')} that an architecture search found, with the hash "
        f"`{winner.architecture.hash[:12]}`.{sizes} Licence: {licence}."
    )


def _files(files: Iterable[str]) -> str:
    tops = dict.fromkeys(each.partition("/")[0] for each in files)
    rows = [f"| `{name}` | {MEANING.get(name, '')} |" for name in tops]
    return "## Files\n\n| | |\n|---|---|\n" + "\n".join(rows)


def _results(origin: Mapping[str, Any]) -> str:
    rows = list(_rows(origin))
    if not rows:
        return ""
    verdict = dict(origin.get("finals") or {}).get("verdict")
    said = f"\n\n{verdict}" if verdict else ""
    head = "## Results\n\n| metric | data | value | 95 % interval | runs |\n|---|---|---|---|---|\n"
    return head + "\n".join(rows) + said


def _rows(origin: Mapping[str, Any]) -> Iterator[str]:
    finals = dict(origin.get("finals") or {})
    seeds = dict(finals.get("all_seeds") or {})
    for split in ("validation", "test"):
        values = [each for each in seeds.get(split) or () if each is not None]
        if values:
            low, high = interval(values)
            mean = sum(values) / len(values)
            shown = "one run" if len(values) < 2 else f"{low:.4g} to {high:.4g}"
            yield f"| {seeds.get('objective', 'objective')} | {split} | {mean:.4g} | {shown} | {len(values)} |"
    metrics = finals.get("metrics") or dict(origin.get("search") or {}).get("metrics") or {}
    for name, value in metrics.items():
        if value is not None and not name.startswith("run/"):
            split, _, short = name.rpartition("/")
            yield f"| {short}, exported run | {split or 'validation'} | {value:.4g} | one run | 1 |"


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Student's 95 % interval of the mean of runs with other seeds; all numbers for a single run."""
    count = len(values)
    if count < 2:
        return -math.inf, math.inf
    from scipy.stats import t

    mean = sum(values) / count
    deviation = math.sqrt(sum((each - mean) ** 2 for each in values) / (count - 1))
    half = float(t.ppf(0.975, count - 1)) * deviation / math.sqrt(count)
    return mean - half, mean + half


def _training(origin: Mapping[str, Any]) -> str:
    run = {**dict(origin.get("search") or {}), **dict(origin.get("finals") or {})}
    about = {
        "trained_from": origin.get("trained_from"),
        "task": origin.get("task"),
        "data_sha256": origin.get("data_sha256"),
        "recipe": origin.get("recipe"),
        "steps": run.get("steps"),
        "seed": run.get("seed"),
    }
    return _yaml("Training", {name: value for name, value in about.items() if value is not None})


def _checks(checked: Sequence[Checked] | None, latency: float) -> str:
    if checked is None:
        return "## Check\n\nThe check was left out (`--no-check`): nothing in this folder was loaded again."
    rows = []
    for each in checked:
        said = f"difference {each.numbers['difference']:.3g}" if "difference" in each.numbers else ""
        said += "".join(f", {name} {each.numbers[name]:,}" for name in ("parameters", "flops") if name in each.numbers)
        for name, both in dict(each.numbers.get("latency") or {}).items():
            said += f", {name} {both['now']:.3g} ms (study: {both['then']:.3g} ms)"
        rows.append(f"| {each.format} | {'; '.join(each.wrong) or 'passed'} | {said} |")
    return (
        "## Check\n\nEvery format was loaded again from these files in a process of its own. Tolerance: "
        f"{OUTPUTS:g} of the largest output, {latency:.0%} of a measured latency, no difference in counts, "
        "nor in weights (of ONNX and AOTInductor, whose compilers change weights, only outputs are compared).\n\n"
        "| format | result | measured |\n|---|---|---|\n" + "\n".join(rows)
    )


def _said(title: str, text: Any) -> str:
    return f"## {title}\n\n{text}" if text else ""


def _yaml(title: str, content: Any) -> str:
    if not content:
        return ""
    text = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110).rstrip()
    return f"## {title}\n\n```yaml\n{text}\n```"
