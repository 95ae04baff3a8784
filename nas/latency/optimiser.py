"""The time of the optimiser's step over the parameters of a model, from the times of a few sizes of tensors.

AdamW treats one tensor after the other, so the step is the sum over the tensors. The time of a tensor is interpolated
between the two nearest measured sizes, both on a logarithmic scale: small tensors cost the overhead of their operators,
large ones the traffic to memory.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence

from nas.latency import runs
from nas.latency.bench import update
from nas.latency.chain import Link, timed
from nas.latency.gauge import gauge
from nas.latency.measured import clock
from nas.latency.runs import Setting
from nas.latency.table import Entry, Table, problem
from tuner.device import resolve
from tuner.measure.measure import Timing

SIZES = (2**5, 2**9, 2**12, 2**14, 2**16, 2**18, 2**20, 2**22)  # elements of a tensor
TOGETHER, MOST = 2**20, 32  # elements in all tensors of one measurement at least, and the most tensors
SECONDS = 5.0


class Optimiser:
    """AdamW's step on a device. The times of the sizes are in the table, for all phases, lengths and batches."""

    def __init__(self, table: Table, setting: Setting) -> None:
        self.table = table
        self.setting = Setting(phase="train", device=setting.device, batch=1, length=1, threads=setting.threads)

    def milliseconds(self, sizes: Iterable[int]) -> float:
        """One step over tensors with these numbers of elements."""
        known = self._known()
        return sum(interpolated(SIZES, known, size) for size in sizes)

    def _known(self) -> list[float]:
        """Milliseconds of one tensor of each size, measured if they are not in the table."""
        keys = [problem(self.setting, action="update", elements=size) for size in SIZES]
        found = [self.table.piece(key) for key in keys]
        if any(each is None for each in found):
            entries = dict(zip(keys, self._measured(), strict=True))
            self.table.keep_pieces(entries)
            found = [*entries.values()]
        return [each.milliseconds for each in found if each is not None]

    def _measured(self) -> list[Entry]:
        where = resolve(self.setting.device)
        counts = {size: min(MOST, max(1, TOGETHER // size)) for size in SIZES}
        with runs.on_threads(self.setting.threads), runs.seeded(where):
            found = timed(
                lambda: [Link(size, update([(size,)] * count, where)) for size, count in counts.items()],
                clock(self.setting),
                gauge=gauge(where),
                quiet=self.table.quiet,
                seconds=SECONDS,
            )
        return [_entry(found[size].first, counts[size]) for size in SIZES]


def _entry(found: Timing, count: int) -> Entry:
    return Entry(found.median / count, found.low / count, found.high / count)


def interpolated(sizes: Sequence[int], times: Sequence[float], size: int) -> float:
    """The time at `size`, linear in the logarithms; beyond the largest size in proportion to it."""
    if size >= sizes[-1]:
        return times[-1] * size / sizes[-1]
    if size <= sizes[0]:
        return times[0]
    above = bisect_left(sizes, size)
    share = math.log(size / sizes[above - 1]) / math.log(sizes[above] / sizes[above - 1])
    return times[above - 1] ** (1 - share) * times[above] ** share
