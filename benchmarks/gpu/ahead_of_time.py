"""Compiles every Triton kernel for GPUs that this machine need not have: `python -m benchmarks.gpu.ahead_of_time`.

Each Triton implementation is called forward and backward, with its default configuration on a bfloat16 problem of its
operation, but its launches only compile. So the types and constants are those of a real call. Kernels that only other
problems or configurations launch are compiled with these. The table lists, for each kernel and target, the registers
per thread, the bytes that a thread keeps outside its registers ("spilled"), and the shared memory per program. If a
compiler rejects a kernel, its message is printed instead. Kernels that were not launched are listed below the table.

    python -m benchmarks.gpu.ahead_of_time [--targets sm_90,gfx942] [--only softmax,rotary] [--json]
"""

from __future__ import annotations

import argparse
import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.support.report import report, skip
from kernels.dispatch import registry, tuned
from kernels.dispatch.registry import Choice, Operation, Problem
from tuner.measure.precompile import Elsewhere

TARGETS = {"sm_80": ("cuda", 80, 32), "sm_90": ("cuda", 90, 32), "sm_100": ("cuda", 100, 32)}
TARGETS |= {"gfx942": ("hip", "gfx942", 64)}
LONGEST_MESSAGE = 60
LEARNED, STEPS = ({"bias": "learned"}, {}), ({"columns": 8192}, {"step": 1024})
FURTHER: Mapping[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {  # (of the problem, parameters): more kernels
    "attention": LEARNED,
    "block_sparse_attention": LEARNED,
    "layer_norm": STEPS,
    "rms_norm": STEPS,
    "softmax": STEPS,
}
SHARED = {"linear_cross_entropy"}  # launches the kernels of `cross_entropy` only; its products would run on the CPU
Use = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", default=",".join(TARGETS), help="separated by commas")
    parser.add_argument("--only", help="names of operations, separated by commas")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if os.environ.pop("TRITON_INTERPRET", None):
        parser.error("Triton's interpreter compiles nothing: unset TRITON_INTERPRET")
    targets = options.targets.split(",")
    if unknown := [each for each in targets if each not in TARGETS]:
        parser.error(f"unknown target {unknown[0]!r}; known: {', '.join(TARGETS)}")
    try:
        import triton
    except ImportError:
        skip("Triton is not installed")
    only = options.only.split(",") if options.only else None
    found = [row for target in targets for row in rows(target, only)]
    missing = set() if only else launched() - {row["kernel"] for row in found}
    notes = [f"not compiled: {', '.join(sorted(missing))}"] if missing else []
    report(
        f"Compiled without a device, Triton {triton.__version__}", together(found), as_json=options.json, notes=notes
    )
    if any("failure" in row for row in found):
        raise SystemExit(1)


def rows(target: str, only: list[str] | None = None) -> Iterator[Use]:
    """The kernels of all operations, each compiled for a target once."""
    with compiling_for(target) as compiled:
        for operation in registry.operations().values():
            if operation.name in SHARED or (only is not None and operation.name not in only):
                continue
            known: set[str] = set()
            for problem, choice in _calls(operation):
                compiled.clear()
                failure = _call(operation, problem, choice)
                for name in sorted(compiled.keys() - known, key=list(compiled).index):
                    print(f"{target} {operation.name} {name}", file=sys.stderr)
                    yield {"operation": operation.name, "kernel": name, "target": target, **compiled[name]}
                known |= compiled.keys()
                if failure:
                    about = {"operation": operation.name, "kernel": choice.implementation, "target": target}
                    yield about | {"failure": failure[:LONGEST_MESSAGE]}


def together(found: list[Use]) -> list[Use]:
    """One row for each kernel, with "registers / spilled bytes / KiB of shared memory" for each target."""
    table: dict[tuple[str, str], Use] = {}
    for each in found:
        about = {"operation": each["operation"], "kernel": each["kernel"]}
        row = table.setdefault((each["operation"], each["kernel"]), about)
        figures = f"{each.get('registers')} / {each.get('spilled')} / {each.get('shared', 0) / 1024:.1f}"
        row[each["target"]] = each.get("failure") or figures
    return list(table.values())


def launched() -> set[str]:
    """The kernels that the Triton modules launch, by their names in the table: those called as `NAME[grid](...)`."""
    root, found = Path(__file__).parents[2], set()
    for file in (root / "kernels").rglob("*_triton.py"):
        tree = ast.parse(file.read_text())
        here = ".".join(file.relative_to(root).with_suffix("").parts)
        home = {
            alias.name: each.module for each in tree.body if isinstance(each, ast.ImportFrom) for alias in each.names
        }
        for each in ast.walk(tree):
            match each:
                case ast.Call(func=ast.Subscript(value=ast.Name(id=name))):
                    found.add(_named(home.get(name) or here, name))
    return found


def _named(module: str, function: str) -> str:
    return f"{module.removeprefix('kernels.').removesuffix('_triton')}.{function}"


def _calls(operation: Operation) -> Iterator[tuple[Problem, Choice]]:
    """The default configuration of each Triton implementation, and one that launches more kernels."""
    problem = _problem(operation)
    for implementation in operation.implementations.values():
        if implementation.is_triton and problem is not None:
            yield problem, Choice.of(implementation.name, implementation.default)
            if operation.name in FURTHER:
                changes, parameters = FURTHER[operation.name]
                sizes, flags = (
                    tuple((name, changes.get(name, value)) for name, value in pairs)
                    for pairs in (problem.sizes, problem.flags)
                )
                other = replace(problem, sizes=sizes, flags=flags)
                yield other, Choice.of(implementation.name, {**implementation.default, **parameters})


def _problem(operation: Operation) -> Problem | None:
    """A bfloat16 problem in the middle of the named ones, with gradients if there is one, as a problem of the CPU."""
    some = [each for each in operation.problems("cuda").values() if each.dtype == "bfloat16"]
    some = [each for each in some if dict(each.flags).get("gradients")] or some
    return replace(some[len(some) // 2], device="cpu") if some else None


def _call(operation: Operation, problem: Problem, choice: Choice) -> str | None:
    """Compile the kernels that the choice launches -> the error message, or None."""
    from tuner.measure.correctness import call_forward_and_backward

    try:
        call_forward_and_backward(operation, problem, tuned.bound(operation, choice))
    except Exception as error:  # of the compiler: it is a result
        return f"{type(error).__name__}: {error}".partition("\n")[0]
    return None


@contextmanager
def compiling_for(target: str) -> Iterator[dict[str, Use]]:
    """Inside the block, launching a Triton kernel only compiles it for `target`. Yields resources by kernel name."""
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver
    from triton.runtime.jit import JITFunction

    original, before, found = JITFunction.run, driver._active, dict[str, Use]()

    def run(self: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        made = original(self, *args, grid=grid, warmup=True, **kwargs)
        found[_named(self.__module__, self.__name__)] = _use(made)
        return made

    driver.set_active(Elsewhere(GPUTarget(*TARGETS[target]), list(TARGETS).index(target)))
    JITFunction.run = run
    try:
        yield found
    finally:
        JITFunction.run = original
        driver._active = before


def _use(made: Any) -> Use:
    read: Callable[[Any], Use] = _of_amd if "amdgcn" in made.asm else _of_nvidia
    return {**read(made), "shared": made.metadata.shared, "warps": made.metadata.num_warps}


def _of_nvidia(made: Any) -> Use:
    """The resources in the compiled file. Values that do not fit into the registers are on the stack of a thread."""
    tool = Path(sys.modules["triton"].__file__ or "").parent / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        done = subprocess.run(
            [str(tool), "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    registers, stack = re.search(r"REG:(\d+)", done.stdout), re.search(r"STACK:(\d+)", done.stdout)
    assert registers and stack, done.stdout
    return {"registers": int(registers[1]), "spilled": int(stack[1])}


def _of_amd(made: Any) -> Use:
    text = made.asm["amdgcn"]
    counts = {name: re.search(rf"\.{name}:\s+(\d+)", text) for name in ("vgpr_count", "private_segment_fixed_size")}
    registers, private = counts["vgpr_count"], counts["private_segment_fixed_size"]
    assert registers and private
    return {"registers": int(registers[1]), "spilled": int(private[1])}


if __name__ == "__main__":
    main()
