"""Lets the tests of this folder import the kernel that they share."""

import importlib.util
import sys
from pathlib import Path

NAME = "scaled_kernel"

if importlib.util.find_spec("triton") is not None:
    SPEC = importlib.util.spec_from_file_location(NAME, Path(__file__).with_name(f"{NAME}.py"))
    sys.modules[NAME] = importlib.util.module_from_spec(SPEC)
    SPEC.loader.exec_module(sys.modules[NAME])
