"""The inline runner: units run one at a time, without Ray, in a child process or in the process of the search."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from nas.runners._here import InlineRunner
from nas.runners.contract import Runner
from nas.runners.registry import runner


@runner("inline")
@dataclass(frozen=True)
class InlineOptions:
    """Units run one at a time: in a child process, or in the process of the search with `process: false`.

    A child contains a unit that crashes, hangs or exhausts the memory.
    """

    process: bool = True

    def start(self, modules: Sequence[str] = ()) -> Runner:
        """A runner. modules: what its child imports first, because it registers what the units need."""
        if not self.process or os.name != "posix" or not sys.executable:
            return InlineRunner()
        from nas.runners._process import ProcessRunner  # it needs the signals of Unix

        return ProcessRunner(modules=modules)
