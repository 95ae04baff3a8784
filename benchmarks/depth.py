"""The cost of depth: memory of reversible and plain layers, and steps and time of adaptive halting.

    python -m benchmarks.depth [--quick] [--json]

Memory: the peak size of the results of operations in one training step (forward and backward; gradients of parameters
are allocated before it), for 2 to 48 layers with one attention and one feed-forward each. `slope` is the memory per
layer, from a line fitted over all depths.

Halting: each cell of a row holds a letter or is blank. A blank cell must get the letter of the nearest cell before it
that has one. A step reads three cells (a causal convolution), so a letter that is d cells away takes d / 2 steps. Easy
rows have no consecutive blanks; hard ones have long runs. One Universal Transformer with halting learns both, mixed.
Then each kind is evaluated in two ways in turns: with halted positions skipped, and with everything computed until all
have halted. Both give the same results. Time is CPU time of this process.
"""

from __future__ import annotations

import argparse
import random
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.support.clock import ProcessTime
from benchmarks.support.report import report
from searchspace.contract import Context, Given
from searchspace.registry import configure
from searchspace.testing import peak_bytes
from searchspace.tree import Block
from tuner.measure.measure import Timing, compare, measure

DEPTHS = (2, 4, 8, 16, 24, 32, 48)
QUICK_DEPTHS = (2, 4, 8)
SLOPE = 0.05  # the bar, relative to the slope of plain layers
WIDTH, LENGTH = 64, 2048
LETTERS, BLANK = 8, 8
CELLS, TIMES, CELL_WIDTH = 32, 8, 96
PONDER = 0.01
NORM = Block("layer_norm", {})
ATTENTION, FEED_FORWARD = Block("attention", {"heads": 2}), Block("feed_forward", {"expand": 4})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--quick", action="store_true", help="fewer layers and little training, only to check that everything works"
    )
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    rows = memory_rows(QUICK_DEPTHS if arguments.quick else DEPTHS)
    report("depth: peak memory of a training step", rows, as_json=arguments.json)
    steps = 40 if arguments.quick else 400
    report(f"depth: halting, {steps} steps of training", halting_rows(steps), as_json=arguments.json)


def memory_rows(depths: tuple[int, ...]) -> list[dict[str, Any]]:
    peaks = {kind: [peak(kind, depth) for depth in depths] for kind in ("plain", "reversible")}
    rows = [
        {"layers": str(depth), **{f"{kind} MB": round(peaks[kind][i] / 1e6, 2) for kind in peaks}, "ratio": ""}
        for i, depth in enumerate(depths)
    ]
    slopes = {kind: slope(depths, values) for kind, values in peaks.items()}
    share = slopes["reversible"] / slopes["plain"]
    slope_row = {"layers": "slope a layer", **{f"{kind} MB": round(slopes[kind] / 1e6, 3) for kind in slopes}}
    return [*rows, {**slope_row, "ratio": f"{share:.3f}, bar {SLOPE}: {'yes' if share <= SLOPE else 'no'}"}]


def peak(kind: str, depth: int) -> int:
    """The peak in bytes of one training step of `depth` layers."""
    torch.manual_seed(0)
    if kind == "plain":
        pair = tuple(Block("residual", {"norm": NORM, "of": (block,)}) for block in (ATTENTION, FEED_FORWARD))
        block = Block("repeat", {"times": depth, "of": pair})
    else:
        block = Block("reversible", {"times": depth, "norm": NORM, "of": ((ATTENTION,), (FEED_FORWARD,))})
    module = configure(block, Given(dim=WIDTH, causal=True)).build()
    for parameter in module.parameters():
        parameter.grad = torch.zeros_like(parameter)
    x = torch.randn(1, LENGTH, WIDTH, requires_grad=True)
    context = Context(positions=torch.arange(LENGTH))
    return peak_bytes(lambda: module(x, context).sum().backward())


def slope(xs: tuple[int, ...], ys: list[int]) -> float:
    """The slope of the least-squares line."""
    x, y = fmean(xs), fmean(ys)
    return sum((a - x) * (b - y) for a, b in zip(xs, ys, strict=True)) / sum((a - x) ** 2 for a in xs)


@dataclass(frozen=True)
class Kind:
    """Rows of cells, by the largest distance of a blank cell from its letter."""

    name: str
    run: int  # maximum number of consecutive blanks

    def draw(self, rng: random.Random, batch: int) -> tuple[Tensor, Tensor]:
        """Cells and the letters that they should get, [B, T] each."""
        rows = [self._row(rng) for _ in range(batch)]
        cells = torch.tensor([row for row, _ in rows])
        return cells, torch.tensor([letters for _, letters in rows])

    def _row(self, rng: random.Random) -> tuple[list[int], list[int]]:
        cells: list[int] = []
        letters: list[int] = []
        while len(cells) < CELLS:
            letter, blanks = rng.randrange(LETTERS), rng.randint(self.run // 2, self.run)
            cells += [letter] + [BLANK] * blanks
            letters += [letter] * (blanks + 1)
        return cells[:CELLS], letters[:CELLS]


EASY, HARD = Kind("easy", 1), Kind("hard", 10)


class Filler(nn.Module):
    """cells: [B, T] -> a score for every letter, [B, T, letters]."""

    def __init__(self) -> None:
        super().__init__()
        mixer = Block("convolution", {"kernel": 3, "kind": "full", "bias": True})
        layer = tuple(Block("residual", {"norm": NORM, "of": (block,)}) for block in (mixer, FEED_FORWARD))
        fields = {"times": TIMES, "signal": "none", "ponder_weight": PONDER, "remainder": "graves", "of": layer}
        self.cells = nn.Embedding(LETTERS + 1, CELL_WIDTH)
        self.halting = configure(Block("halting", fields), Given(dim=CELL_WIDTH, causal=True)).build()
        self.letters = nn.Sequential(nn.LayerNorm(CELL_WIDTH), nn.Linear(CELL_WIDTH, LETTERS))

    def forward(self, cells: Tensor, context: Context) -> Tensor:
        context.positions = torch.arange(cells.shape[1])
        return self.letters(self.halting(self.cells(cells), context))


def trained(steps: int) -> Filler:
    torch.manual_seed(0)
    model, rng = Filler(), random.Random(0)
    nn.init.constant_(model.halting.halt.bias, -2.0)  # deep at first: a model that stops too early never learns to wait
    optimiser = torch.optim.AdamW(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, 2e-3, total_steps=steps)
    for _ in range(steps):
        batches = [kind.draw(rng, 8) for kind in (EASY, HARD)]
        cells, letters = (torch.cat(parts) for parts in zip(*batches, strict=True))
        context = Context()
        loss = F.cross_entropy(model(cells, context).flatten(0, 1), letters.flatten()) + context.loss()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
    return model.eval()


def halting_rows(steps: int) -> list[dict[str, Any]]:
    model = trained(steps)
    rng = random.Random(1)
    easy, hard = EASY.draw(rng, 32), HARD.draw(rng, 32)
    mixed = tuple(torch.cat([a[:24], b[:8]]) for a, b in zip(easy, hard, strict=True))
    return [halting_row(model, *each) for each in (("easy", *easy), ("hard", *hard), ("24 easy, 8 hard", *mixed))]


@torch.no_grad()
def halting_row(model: Filler, name: str, cells: Tensor, letters: Tensor) -> dict[str, Any]:
    context = Context()
    found = model(cells, context)
    times = _timed(model, cells)
    left_out = compare(times["all"], times["needed"]).median
    return {
        "rows": name,
        "right": f"{(found.argmax(2) == letters).float().mean().item():.4f}",
        "mean steps": round(context.statistics["halting_steps"][0].item(), 2),
        f"ms, all {TIMES} steps": round(times["fixed"].median, 2),
        "ms, until all halted": round(times["all"].median, 2),
        "ms, skipping": round(times["needed"].median, 2),
        "faster": f"{left_out:.2f} x; {compare(times['fixed'], times['needed']).median:.2f} x all steps",
    }


def _timed(model: Filler, cells: Tensor) -> dict[str, Timing]:
    """One pass over the rows: all steps, all steps until everything has halted, and only the needed positions."""
    everything, fixed = deepcopy(model).train(), deepcopy(model).train()  # training mode skips nothing
    nn.init.zeros_(fixed.halting.halt.weight)
    nn.init.constant_(fixed.halting.halt.bias, -20.0)  # and nothing halts
    models = {"fixed": fixed, "all": everything, "needed": model}
    calls = {name: partial(_pass, each, cells) for name, each in models.items()}
    return measure(calls, repeats=15, clock=ProcessTime())


def _pass(model: Filler, cells: Tensor) -> None:
    model(cells, Context())


if __name__ == "__main__":
    main()
