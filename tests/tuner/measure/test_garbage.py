"""Garbage collection around measurements: short, off while something is timed, and afterwards as it was."""

import gc
import subprocess
import sys

from tuner.measure import garbage

FROZEN = """
import gc
from tuner.measure import garbage

for _ in range(2):
    undo = garbage.spare_existing()
    inner = garbage.spare_existing()
    inner()
    assert gc.get_freeze_count()
    undo()
    assert not gc.get_freeze_count()

gc.freeze()
before = gc.get_freeze_count()
for _ in range(2):
    with garbage.little_garbage():
        pass
assert gc.get_freeze_count() >= before - 100, "the program's own objects stay excluded"
"""


def test_objects_that_the_program_excluded_stay_excluded(root):
    subprocess.run([sys.executable, "-S", "-c", FROZEN], cwd=root, check=True)


def test_the_collector_is_off_inside_alone():
    with garbage.collector_off():
        assert not gc.isenabled()
    assert gc.isenabled()

    gc.disable()
    try:
        with garbage.collector_off():
            assert not gc.isenabled()
        assert not gc.isenabled()
    finally:
        gc.enable()
