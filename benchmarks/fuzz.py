"""Corrupted files: each must be read or rejected with a message, without a traceback or a hang.

    python -m benchmarks.fuzz [--count 10000] [--seed 0] [--files measurements] [--json]

The files are the architectures of the zoo, the spaces and search files of the examples, a space and a search file (in
this module) that use the whole language, and a table, a lock file and measurements of the tuner. Each case makes one to
four changes to one of them: bytes, lines, words, types, tags, nesting, numbers. If the result is still valid, a
description must also print, and the printed text must read back as the same thing. `--files` uses only the files whose
names begin with the given text.
"""

from __future__ import annotations

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.support import tuning_files
from benchmarks.support.report import report
from nas.config import searchfile
from nas.errors import NasError
from searchspace import zoo
from searchspace.errors import SpaceError
from searchspace.language import language
from searchspace.model.architecture import Architecture
from searchspace.space.space import Space
from searchspace.tree import has_holes

EXAMPLES = Path(__file__).parent.parent / "examples"
SECONDS = 10  # of CPU for one case, so that a busy machine does not matter
PLACE = "mangled.yaml"

Reader = Callable[[Path], Any]

SPACE = """\
kind: decoder
width: !choice {options: [64, 128], name: width}
vocabulary: 256
position: !choice [rotary, {learned: 512}, none]
body:
  - repeat:
      times: !int {low: 1, high: 6, name: depth}
      share_weights: !choice [false, true]
      of:
        - residual:
            norm: !choice [layer_norm, {rms_norm: {eps: !float {low: 1e-8, high: 1e-4, log: true}}}]
            dropout: !float {low: 0, high: 0.5, step: 0.1}
            of: !choice
              - attention: {heads: !choice {options: [2, 4, 8], name: heads}, key_value_heads: !choice [null, 1, 2]}
              - [linear_attention: {heads: 4}, convolution: {kernel: !int {low: 3, high: 9, step: 2, each: true}}]
              - sequence: []
        - &forward
          residual: {of: {gated_feed_forward: {gate: !choice [sigmoid, silu]}}}
        - *forward
  - parallel: {combine: mean, of: [attention, [convolution, feed_forward]]}
  - halting: {times: !same depth, of: [residual: {norm: rms_norm, of: feed_forward}]}
constraints:
  parameters: {min: 1k, max: 5M}
  state_bytes_per_token: 2KiB
"""
SEARCH = """\
study: fuzzed
space:
  kind: decoder
  width: !choice [32, 64]
  vocabulary: 256
  body: {repeat: {times: 2, of: [residual: attention, residual: !choice [feed_forward, convolution]]}}
  constraints: {parameters: 5M}
task: {language_model: {length: 64, batch: 4, evaluation: 4096}}
recipe: {learning_rate: 1e-3, warmup: 20}
objectives: [bits_per_byte, flops]
strategy: {aging_evolution: {population: 8}}
scheduler: {halving: {rungs: [10, 30], factor: 3}}
runner: inline
budget: {trials: 8, minutes: 1}
finals: {top: 1, seeds: 2, steps: 30}
limits: {unit_seconds: 60, attempts: 2}
seed: 0
"""


@dataclass(frozen=True)
class Accident:
    """A case that was neither read nor rejected: what happened, and the file that caused it."""

    case: int
    origin: str
    what: str
    content: bytes


class _TooSlow(BaseException):
    """The time limit of a case. Not an Exception, so that no code in between can catch it as a rejection."""


def read_model(path: Path) -> None:
    """Read an architecture or a space. The result must print, and the text must read back as the same thing."""
    description = language.load(path, given={"vocabulary": 256})  # some spaces leave it to a task
    again = language.parse(language.render(description.root, description.constraints))
    assert again == description, "what was printed is read as something else"
    if has_holes(description.root):
        Space(description.root, description.constraints).size()
        return
    architecture = Architecture.from_block(description.root)
    assert Architecture.parse(architecture.text()) == architecture, "an architecture changed when printed"


def files() -> dict[str, tuple[bytes, Reader]]:
    """Every file to corrupt, with its reader."""
    models = [zoo.path(name) for name in zoo.names()] + sorted((EXAMPLES / "spaces").glob("*.yaml"))
    found: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
        path.name: (path.read_bytes(), read_model) for path in models
    }
    for path in sorted(EXAMPLES.glob("*.yaml")):
        if path.stem in ("own_text", "translation") or path.stem.startswith("everything"):
            continue  # the first two need text files of the user; the spaces of the others take a second to read
        found[f"examples/{path.name}"] = (path.read_bytes(), searchfile.load)
    found["every part of the language"] = (SPACE.encode(), read_model)
    found["every part of a search"] = (SEARCH.encode(), searchfile.load)
    return found | tuning_files.files()


WORDS = [
    "no", "null", "true", "~", "1e-3", "-1", "0", "5M", "[]", "{}", "''", "!choice [1, 2]", "!int [1, 2]", "!same x",
    "!!python/name:os.system", "*forward", "&a [*a]", "<<: *forward", "9" * 50, "9" * 5000, "1e400", ".nan", "-.inf",
    "attention", "decoder", "{of: attention}", "é", "\U0001f600", "1:30", "2001-01-01", "!choice", "? ", "- ", ": ",
    "---", "...", "%YAML 9.9", "\t", "|", ">", "'", '"', "{", "]", "times: 1000000000", "each: true", "name: heads",
]  # fmt: skip


def mangled(content: bytes, luck: random.Random) -> bytes:
    """`content` after one to four changes."""
    for _ in range(luck.randint(1, 4)):
        content = luck.choice(CHANGES)(content, luck)
    return content


def _flip(content: bytes, luck: random.Random) -> bytes:
    if not content:
        return content
    at = luck.randrange(len(content))
    return content[:at] + bytes([content[at] ^ (1 << luck.randrange(8))]) + content[at + 1 :]


def _cut(content: bytes, luck: random.Random) -> bytes:
    start, length = luck.randrange(len(content) + 1), luck.choice([1, 3, 20, 10**6])
    return content[:start] + content[start + length :]


def _lines(content: bytes, luck: random.Random) -> bytes:
    """Delete, repeat, swap or indent a line."""
    lines = content.split(b"\n")
    one, other = luck.randrange(len(lines)), luck.randrange(len(lines))
    match luck.randrange(5):
        case 0:
            del lines[one]
        case 1:
            lines.insert(other, lines[one])
        case 2:
            lines[one], lines[other] = lines[other], lines[one]
        case 3:
            lines[one] = luck.choice([b" ", b"  ", b"\t", b"- "]) + lines[one]
        case 4:
            lines[one] = lines[one][luck.randint(1, 4) :]
    return b"\n".join(lines)


def _swap_words(content: bytes, luck: random.Random) -> bytes:
    """Swap two words of the file: keys, values or tags."""
    words = content.split(b" ")
    one, other = luck.randrange(len(words)), luck.randrange(len(words))
    words[one], words[other] = words[other], words[one]
    return b" ".join(words)


def _replace_word(content: bytes, luck: random.Random) -> bytes:
    words = content.split(b" ")
    words[luck.randrange(len(words))] = luck.choice(WORDS).encode()
    return b" ".join(words)


def _insert(content: bytes, luck: random.Random) -> bytes:
    at = luck.randrange(len(content) + 1)
    return content[:at] + luck.choice(WORDS).encode() + content[at:]


def _replace_value(content: bytes, luck: random.Random) -> bytes:
    """Replace the text after a colon by a value of another type."""
    lines = content.split(b"\n")
    one = luck.randrange(len(lines))
    key, colon, _ = lines[one].partition(b":")
    lines[one] = key + colon + b" " + luck.choice(WORDS).encode() if colon else lines[one]
    return b"\n".join(lines)


def _nest(content: bytes, luck: random.Random) -> bytes:
    """Insert nested brackets, mappings or blocks, from a few levels to very many."""
    depth = luck.choice([3, 15, 60, 500, 20_000])
    opening, closing = luck.choice([(b"[", b"]"), (b"{a: ", b"}"), (b"{residual: {of: ", b"}}"), (b"!choice [", b"]")])
    lines = content.split(b"\n")
    one = luck.randrange(len(lines))
    key, _, value = lines[one].partition(b": ")
    lines[one] = key + b": " + opening * depth + (value or b"attention") + closing * (depth - luck.randrange(2))
    return b"\n".join(lines)


def _byte_order(content: bytes, luck: random.Random) -> bytes:
    encoding = luck.choice(["utf-16", "utf-32", "utf-8-sig", "latin-1"])
    return content.decode(errors="replace").encode(encoding, errors="replace")


def _bomb(content: bytes, luck: random.Random) -> bytes:
    kind = luck.choice([b"[%s]", b"{<<: [%s]}"])
    rows = [b"z0: &z0 {a: [1, 2, 3]}"]
    rows += [b"z%d: &z%d " % (i, i) + kind % b", ".join([b"*z%d" % (i - 1)] * 9) for i in range(1, luck.randint(3, 30))]
    return content + b"\n" + b"\n".join(rows)


CHANGES = [_flip, _cut, _lines, _lines, _lines, _swap_words, _replace_word, _replace_word, _insert, _replace_value,
           _replace_value, _replace_value, _nest, _byte_order, _bomb]  # fmt: skip


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises _TooSlow if the code inside takes more than this CPU time, or ten times this wall-clock time."""

    def ring(*_: Any) -> None:
        raise _TooSlow

    timers = ((signal.SIGPROF, signal.ITIMER_PROF, 1), (signal.SIGALRM, signal.ITIMER_REAL, 10))
    before = [signal.signal(number, ring) for number, _, _ in timers]
    try:
        for _, timer, times in timers:
            signal.setitimer(timer, times * seconds)
        yield
    finally:
        for (number, timer, _), handler in zip(timers, before, strict=True):
            signal.setitimer(timer, 0)
            signal.signal(number, handler)


def outcome(read: Reader, path: Path) -> str:
    """'read', 'refused', or a description of the failure."""
    try:
        with time_limit(SECONDS):
            read(path)
    except (SpaceError, NasError) as error:
        return "refused" if str(error).strip() else "refused without a message"
    except _TooSlow:
        return f"still running after {SECONDS} s of CPU"
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt):
            raise
        return "".join(traceback.format_exception(error)[-4:])
    return "read"


def run(count: int, seed: int, begins: str = "") -> tuple[dict[str, Counter[str]], list[Accident], float]:
    """Try `count` cases, of the files whose names begin with `begins`. Returns how often each file was read and
    rejected, the accidents, and the slowest case in seconds of CPU.
    """
    known = {name: each for name, each in files().items() if name.startswith(begins)}
    if not known:
        raise SystemExit(f"No file begins with {begins!r}. There are: {', '.join(sorted(files()))}")
    tally: dict[str, Counter[str]] = {origin: Counter() for origin in known}
    accidents: list[Accident] = []
    slowest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)  # search files name spaces in their folder
        path = Path(folder) / PLACE
        for case in range(count):
            luck = random.Random(f"{seed}/{case}")
            origin = luck.choice(sorted(known))
            content, read = known[origin]
            content = mangled(content, luck)
            path.write_bytes(content)
            start = time.process_time()
            what = outcome(read, path)
            slowest = max(slowest, time.process_time() - start)
            if what not in ("read", "refused"):
                accidents.append(Accident(case, origin, what, content))
                what = "accident"
            tally[origin][what] += 1
    return tally, accidents, slowest


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Corrupted files are read or rejected with a message, never anything else."
    )
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--files", default="", help="only those whose names begin with this")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    tally, accidents, slowest = run(options.count, options.seed, options.files)
    kinds = ("read", "refused", "accident")
    rows = [{"file": origin} | {kind: counts[kind] for kind in kinds} for origin, counts in tally.items()]
    total = {"file": "all"} | {kind: sum(counts[kind] for counts in tally.values()) for kind in kinds}
    counted = f"{options.count} cases, seed {options.seed}; accidents: {len(accidents)} (bar: 0)"
    notes = [f"{counted}; slowest case {slowest:.2f} s"]
    report("Corrupted files", [*rows, total], as_json=options.json, notes=notes)
    for accident in accidents[:10]:
        print(
            f"\ncase {accident.case} of {accident.origin!r}:\n{accident.content[:2000]!r}\n{accident.what}",
            file=sys.stderr,
        )
    raise SystemExit(1 if accidents else 0)


if __name__ == "__main__":
    main()
