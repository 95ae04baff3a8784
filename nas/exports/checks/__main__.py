"""Checks formats of an export: `python __main__.py FOLDER PLACE SECONDS FORMAT ...`.

It imports torch once and then forks, so each check has its own process, and torch is imported only once. PLACE holds
`expected.pt` for all checks, and gets FORMAT.json with the numbers, FORMAT.pt with the weights, and FORMAT.txt with the
output of the check and its error. A check that fails, or takes longer than SECONDS, leaves no FORMAT.json.
"""

import gc
import importlib.util
import json
import os
import signal
import sys
import time
import traceback
from pathlib import Path

HERE = Path(__file__).resolve().parent
HIDDEN = ("nas", "searchspace", "kernels", "tuner")
sys.path[:] = [each for each in sys.path if Path(each).resolve() != HERE]  # files here have the names of libraries

gc.disable()  # libraries are no garbage, and the checks make little

import torch  # noqa: E402


def main(folder: Path, place: Path, seconds: int, formats: list[str]) -> None:
    """Check `formats` one after the other; where a system cannot fork, only the first."""
    for name in formats:
        if not hasattr(os, "fork"):
            one(name, folder, place)
            return
        child = os.fork()
        if not child:
            one(name, folder, place)
            os._exit(0)
        if why := ended(child, seconds):
            with (place / f"{name}.txt").open("a") as file:
                file.write(f"\n{why}\n")


def ended(child: int, seconds: int) -> str:
    """Wait for a process, and kill it if it takes too long -> why it did not end by itself, or ""."""
    deadline = time.monotonic() + seconds
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return f"signal {os.WTERMSIG(status)} ended it" if os.WIFSIGNALED(status) else ""
        if time.monotonic() > deadline:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return f"it took longer than {seconds} seconds"
        time.sleep(0.02)


def one(name: str, folder: Path, place: Path) -> None:
    """Run one check in this process."""
    printed = os.open(place / f"{name}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(printed, 1)
    os.dup2(printed, 2)
    if name != "yaml":
        sys.modules.update(dict.fromkeys(HIDDEN))  # type: ignore[arg-type]
    try:
        found = importlib.util.spec_from_file_location(f"check_{name}", HERE / f"{name}.py")
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        found.loader.exec_module(module)
        numbers, weights = module.check(folder, torch.load(place / "expected.pt"))
        if weights is not None:
            torch.save(weights, place / f"{name}.pt")
        part = place / f"{name}.part"  # a full disk leaves no half of a result
        part.write_text(json.dumps(numbers))
        part.replace(place / f"{name}.json")
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
    gc.freeze()  # or the end of the process would search them all
