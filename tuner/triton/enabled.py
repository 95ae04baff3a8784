"""Whether a kernel may be tuned here and now: never where that would be recorded, traced, or come as a surprise."""

from __future__ import annotations

import os

import torch

SWITCH = "NAS_TUNING"
SETTINGS = ("on", "off")


def reason_not_to_tune() -> str | None:
    """Why nothing may be tuned now; None if tuning is enabled. Raises ValueError if $NAS_TUNING is not on or off."""
    setting = os.environ.get(SWITCH, "")
    if setting and setting not in SETTINGS:
        raise ValueError(f"{SWITCH} must be one of {', '.join(SETTINGS)}, but is {setting!r}.")
    if torch.compiler.is_compiling():
        return "nothing is tuned inside a trace of torch.compile"
    if torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        return "nothing is tuned inside the capture of a CUDA graph"
    if setting == "off":
        return f"{SWITCH}=off"
    if not setting and "PYTEST_CURRENT_TEST" in os.environ:
        return f"nothing is tuned inside a test unless {SWITCH}=on"
    return None
