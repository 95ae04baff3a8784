"""Write kernels/dispatch/former_sources.json: hashes of kernel sources that a former release wrote -> those of now.

    git worktree add /tmp/former 9095e06
    python scripts/former_sources.py /tmp/former [PYTHON ...]

Commit 9095e06 is the last one that hashed import lines and docstrings. Its hash is one of `ast.dump`, whose text
differs between versions of Python: name the interpreters of those versions too, they need no packages. Run this only if
the code of an implementation computes what it computed at that commit: the file says that measurements of then are
valid now. If the code of an implementation really changed, delete its entry from the file instead.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ABOUT = (
    "Hashes of kernel sources as commit 9095e06 wrote them, and those of the same code now. Made by "
    "scripts/former_sources.py; read by kernels/dispatch/sources.py. Delete an entry when its code changes."
)

# Which modules define each implementation there; then, by any Python, their hashes as that commit computed them.
MODULES = """
import inspect, json
from kernels.registry import operations
print(json.dumps({name: {way: [inspect.unwrap(each.call).__module__, *each.files]
                         for way, each in found.implementations.items()} for name, found in operations().items()}))
"""
HASHES = """
import ast, hashlib, json, sys
from pathlib import Path

def describes(statement):
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return False
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
        return True
    calls = (each.func for each in ast.walk(statement) if isinstance(each, ast.Call))
    return any(isinstance(each, ast.Name) and each.id in ("register", "Operation", "Implementation") for each in calls)

def hashed(modules):
    sources = hashlib.sha256()
    for module in modules:
        text = Path(*module.split(".")).with_suffix(".py").read_text(encoding="utf-8")
        sources.update("\\n".join(ast.dump(each) for each in ast.parse(text).body if not describes(each)).encode())
    return sources.hexdigest()[:16]

print(json.dumps({name: {way: hashed(modules) for way, modules in ways.items()}
                  for name, ways in json.load(sys.stdin).items()}))
"""


def answer(python: str, code: str, folder: Path, asked: object = None) -> dict[str, dict]:
    """What `code` prints when an interpreter runs it in `folder`."""
    command = [python, "-c", f"import sys; sys.path.insert(0, {str(folder)!r})\n{code}"]
    done = subprocess.run(command, cwd=folder, input=json.dumps(asked), capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("former", type=Path, help="a checkout of commit 9095e06")
    parser.add_argument("python", nargs="*", help="interpreters of other versions, with ast.dump of their own")
    given = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from kernels.dispatch.registry import operations
    from kernels.dispatch.sources import FORMER

    modules = answer(sys.executable, MODULES, given.former)
    found = [answer(python, HASHES, given.former, modules) for python in (sys.executable, *given.python)]
    now = operations()
    rows = {
        name: {
            way: {each[name][way]: now[name].implementations[way].source for each in found}
            for way in ways
            if way in now[name].implementations
        }
        for name, ways in modules.items()
        if name in now
    }
    FORMER.write_text(json.dumps({"about": ABOUT, "operations": rows}, indent=1) + "\n", encoding="utf-8")
    print(f"{FORMER}: {sum(len(ways) for ways in rows.values())} implementations")


if __name__ == "__main__":
    main()
