"""How a measured latency that a trial keeps as evidence reads: its interval, its device, and what served it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

OPTIONS = ("phase", "device", "length", "batch", "threads", "depth", "new_tokens")  # of `nas profile`
UNITS = {  # in the names of results, by objective
    "latency": "ms",
    "throughput": "tokens_per_second",
    "energy": "joules",
    "peak_memory": "peak_bytes",
}
LOADED = 1.05  # times the quietest run of a fixed computation: above this the load of the machine counts


def sentence(name: str, found: Mapping[str, Any], trial: str) -> str:
    """How the latency `name` of a trial was found, and the command that measures it again.

    trial: STUDY:NUMBER, followed by --storage if a command needs it.
    """
    checked = found["cross_check"] if found["kind"] == "predicted" else None
    within = f", predictions within {checked['error']:.1%} of {checked['of']} measured" if checked else ""
    why = f" ({found['not_predicted']})" if found.get("not_predicted") else ""
    load = f", at {found['load']:.2f} times the load of quiet times" if (found["load"] or 1) > LOADED else ""
    more = f", {found['tokens_per_second']:,.0f} tokens a second" if found.get("tokens_per_second") else ""
    more += f", {found['joules']:.3g} joules a call" if found.get("joules") else ""
    if found.get("peak_bytes"):
        more += f", at most {found['peak_bytes']:,} bytes"
        more += f" ({found['declared_bytes']:,} declared)" if found.get("declared_bytes") else ""
    asked = {**found, "device": found["device"]["asked"]}
    setting = " ".join(f"--{name.replace('_', '-')} {asked[name]}" for name in OPTIONS if name in asked)
    return (
        f"{name} {found['milliseconds']:.4g} ms, {found['low']:.4g} to {found['high']:.4g}, {found['kind']}{why} on "
        f"{found['device']['name']}{within}{load}{more}; again: nas profile {trial} {setting}"
    )


def left_to_machines(config: Mapping[str, Any]) -> list[tuple[int, str, str]]:
    """(rung of its probes, name, machine) of each objective of a stored search file that a machine finds later."""
    found = []
    for rung, each in enumerate(config.get("objectives", ()), 1):
        options = each["options"]
        if machine := (options.get("on") or {}).get("machine"):
            name = options.get("name") or f"{options.get('phase', 'prefill')}_{UNITS[each['name']]}"
            found.append((rung, name, machine))
    return found


def served(evidence: Mapping[str, Mapping[str, Any]]) -> list[dict[str, str]]:
    """Which implementations and configurations served these latencies, one row a problem."""
    rows = rows_of(row for found in evidence.values() for row in found["served"])
    return list({str(row): row for row in rows}.values())


def rows_of(problems: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Problems and what serves them, as rows of a table."""
    return [
        {
            "operation": each["operation"],
            "problem": " ".join(
                f"{name}={value}" for key in ("sizes", "flags") for name, value in each.get(key, {}).items()
            ),
            "choice": each["choice"],
            "why": each["why"],
        }
        for each in problems
    ]
