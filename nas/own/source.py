"""A Python file of the user, run from its text: workers on other machines, and a later run of a study, have only that.

Classes cannot be sent instead. With `from __future__ import annotations`, the types of a configuration are looked up in
the module of its class, which must exist on the worker.
"""

from __future__ import annotations

import contextlib
import hashlib
import linecache
import sys
import traceback
from pathlib import Path
from types import ModuleType

PREFIX = "nas_own_"  # of the names of modules that are made here
ALONE = (
    "\nOnly the text of the file itself is sent to workers, so it cannot import {}.py next to it. Put both into one "
    "file, or install the other as a package on every machine."
)


def module_name(kind: str, source: str) -> str:
    """The name of the module that the text `source` of a file becomes. kind: what the file defines, such as `task`."""
    return f"{PREFIX}{kind}_{hashlib.sha256(source.encode()).hexdigest()[:16]}"


def read(path: Path) -> str:
    """The text of the file `path`, without a byte order mark. Raises OSError or UnicodeDecodeError if it has none."""
    return path.read_text(encoding="utf-8-sig")


def run(name: str, path: str, source: str) -> ModuleType:
    """Run the text `source` of the file `path` as the module `name`. Tracebacks of errors show the lines of `path`.

    What the file prints goes to stderr: stdout is for the results of a command. Raises whatever the file raises; the
    module is then forgotten.
    """
    # linecache lets a traceback quote the file on a machine that has only its text; no mtime means it is never dropped.
    linecache.cache[path] = (len(source), None, source.splitlines(keepends=True), path)
    module = ModuleType(name)
    module.__file__ = path
    sys.modules[name] = module  # dataclasses and pickle look up the module of a class
    try:
        with contextlib.redirect_stdout(sys.stderr):
            exec(compile(source, path, "exec"), module.__dict__)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def own_traceback(error: BaseException, file: str | Path) -> str:
    """The traceback of `error` from the first frame of the user's file on."""
    start = error.__traceback__
    while start is not None and start.tb_frame.f_code.co_filename != str(file):
        start = start.tb_next
    said = "".join(traceback.format_exception(type(error), error, start)).rstrip()
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    beside = missing is not None and Path(file).with_name(f"{missing}.py").is_file()
    return said + (ALONE.format(missing) if beside else "")
