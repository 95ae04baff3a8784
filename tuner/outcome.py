"""What can come of measuring a configuration, and how an exception tells."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

MESSAGE = 2000  # characters of a message that are kept


class Kind(StrEnum):
    """How a measurement ended; all but the first say why there is no time."""

    TIMED = "timed"
    WRONG = "wrong"  # it ran, but not to the result of the definition
    CRASHED = "crashed"  # it raised, or its process died
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    BUILD_ERROR = "build_error"  # a compiler refused it
    REFUSED = "refused"  # it says itself that it cannot run the problem


@dataclass(frozen=True)
class Outcome:
    """samples: milliseconds of one call. message: why there are none. seconds: of the check, which builds it too."""

    kind: Kind
    samples: tuple[float, ...] = ()
    message: str = ""
    seconds: float = 0.0


def of_exception(error: BaseException) -> Outcome:
    """What an exception from a first call says of the configuration."""
    text = f"{type(error).__name__}: {error}"[:MESSAGE]
    module = type(error).__module__
    if type(error).__name__ == "OutOfResources":  # Triton: of shared memory or registers
        return Outcome(Kind.BUILD_ERROR, message=text)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _lacks_memory(str(error)):
        return Outcome(Kind.OUT_OF_MEMORY, message=text)
    if module.startswith(("triton", "torch._inductor", "torch._dynamo")):
        return Outcome(Kind.BUILD_ERROR, message=text)
    return Outcome(Kind.CRASHED, message=text)


def poisons(error: BaseException) -> bool:
    """Whether nothing that this process computes on its device afterwards can be trusted."""
    return type(error).__name__ == "AcceleratorError" or "CUDA error" in str(error)


def _lacks_memory(text: str) -> bool:
    return any(each in text.lower() for each in ("can't allocate memory", "out of memory", "cannot allocate memory"))
