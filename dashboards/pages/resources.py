"""Time against the registers and the shared memory of the compiled kernels of a configuration on a GPU."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dashboards.figures.figure import Axis, Figure, Series
from dashboards.view import Column
from nas.store.measurements import Measurement

NAMES = ("registers", "spills", "shared", "warps")
COLUMNS = (
    Column("registers", "Registers", "number", sorts=True),
    Column("spills", "Spilled", "number", sorts=True),
    Column("shared", "Shared memory", "bytes", sorts=True),
)
FIGURES: Mapping[str, tuple[str, str, float, str]] = {
    "registers": (
        "Time against registers",
        "Registers per thread",
        1,
        "If a call launches several kernels, the one with the most registers counts.",
    ),
    "shared": (
        "Time against shared memory",
        "Shared memory per program (KiB)",
        1024,
        "If a call launches several kernels, the one with the most shared memory counts.",
    ),
}
SPILLS = " Triangles spill registers: their threads keep values in memory, because there are too few registers."
EMPTY = (
    "No device reported registers and shared memory for this problem. Triton reports them for kernels that it compiles "
    "for a GPU, but not on a CPU or in its interpreter. Earlier versions did not store them. On a machine with a GPU, "
    "`nas tune run OPERATION --again` measures known configurations again."
)


def used(each: Measurement) -> dict[str, int]:
    """The resources of the kernels of a measurement, by name. Invalid values in the database are left out."""
    found = each.resources if isinstance(each.resources, Mapping) else {}
    return {name: found[name] for name in NAMES if type(found.get(name)) is int and found[name] >= 0}


def figures(measured: Sequence[Measurement], names: Mapping[str, str]) -> dict[str, Figure]:
    """A figure for each known resource. If there is none, an empty figure that says why."""
    timed = [each for each in measured if each.milliseconds]
    found = {name: _figure(name, timed, names) for name in FIGURES}
    found = {name: figure for name, figure in found.items() if not figure.is_empty}
    title = "Time against registers and shared memory"
    return found or {"registers": Figure(title=title, x=Axis(label=""), y=Axis(label=""), empty=EMPTY)}


def _figure(name: str, timed: Sequence[Measurement], names: Mapping[str, str]) -> Figure:
    title, label, unit, note = FIGURES[name]
    series: list[Series] = []
    known = [each for each in timed if name in used(each)]
    devices = list(dict.fromkeys(each.device for each in known))
    for place, device in enumerate(devices):
        about = f"{names.get(device, device[:12])}: " if len(devices) > 1 else ""
        for spills, symbol in ((False, "circle"), (True, "triangle")):
            own = [each for each in known if each.device == device and bool(used(each).get("spills")) == spills]
            series.append(
                Series(
                    name=f"{about}{'spills registers' if spills else 'no spills'}",
                    x=[used(each)[name] / unit for each in own],
                    y=[each.milliseconds for each in own],
                    colour=place,
                    symbol=symbol,
                    size=8 if spills else 6,
                    text=[_text(each) for each in own],
                )
            )
    note += SPILLS if any(used(each).get("spills") for each in known) else ""
    return Figure(title=title, x=Axis(label=label), y=Axis(label="Milliseconds", log=True), series=series, note=note)


def _text(each: Measurement) -> str:
    found = ", ".join(f"{value} {name}" for name, value in used(each).items())
    return f"{each.implementation} {each.configuration}: {found}"
