"""Triton's interpreter without two repeated computations, which take a third of its time."""

from __future__ import annotations

import os
from types import SimpleNamespace

import pytest


@pytest.fixture(scope="session", autouse=True)
def _quick_interpreter():
    """Patch `triton.language` once a launch, not in each call of a function inside it, and look each dtype up once.

    The interpreter replaces the functions of `triton.language` while a kernel runs. It does so again whenever the
    kernel calls another function, although nothing has restored them meanwhile. If a version of Triton lacks these two
    functions, nothing is changed.
    """
    if os.environ.get("TRITON_INTERPRET") != "1":
        return
    interpreter = pytest.importorskip("triton.runtime.interpreter")
    if hasattr(interpreter, "_patch_lang"):
        interpreter._patch_lang = _once_a_launch(interpreter._patch_lang, interpreter.tl)
    if hasattr(interpreter, "_get_np_dtype"):
        interpreter._get_np_dtype = _once_a_dtype(interpreter._get_np_dtype)


def _once_a_launch(patch, language):
    seen, patched = {}, set()

    def patch_once(function):
        if function not in seen:
            values = function.__globals__.values()
            seen[function] = {module for module in (language, language.core) if any(each is module for each in values)}
        if seen[function] <= patched:
            return SimpleNamespace(restore=lambda: None)
        outermost, scope = not patched, patch(function)
        patched.update(seen[function])

        def restore():
            scope.restore()
            if outermost:
                patched.clear()

        return SimpleNamespace(restore=restore)

    return patch_once


def _once_a_dtype(look_up):
    found = {}

    def look_up_once(dtype):
        name = dtype.scalar.name  # a block has the dtype of its elements
        if name not in found:
            found[name] = look_up(dtype)
        return found[name]

    return look_up_once
