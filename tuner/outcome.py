"""The possible outcomes of measuring a configuration, and the outcome that an exception means."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from nas.child import Death

MESSAGE = 2000  # characters of a message that are kept


class Kind(StrEnum):
    """How a measurement ended; all kinds but the first mean that there is no time."""

    TIMED = "timed"
    WRONG = "wrong"  # its result differs from that of the definition
    CRASHED = "crashed"  # it raised, or its process died
    TIMED_OUT = "timed_out"
    OUT_OF_MEMORY = "out_of_memory"
    BUILD_ERROR = "build_error"  # a compiler rejected it
    REFUSED = "refused"  # it declares that it cannot run the problem
    KILLED = "killed"  # each process that tried it alone was killed from outside, perhaps because memory was short
    CALL = "call"  # what belongs to no configuration raised, such as a grid function or the operation's definition


# A later session tries again after these.
TEMPORARY = {Kind.OUT_OF_MEMORY, Kind.TIMED_OUT, Kind.KILLED, Kind.CALL}
LIVES = 3  # processes that try a configuration alone, if each is killed from outside


@dataclass(frozen=True)
class Outcome:
    """samples: milliseconds of one call. message: why there are none. seconds: of the check, including compilation.
    resources: what the compiled kernels use (`tuner.measure.resources`), None if that is not known."""

    kind: Kind
    samples: tuple[float, ...] = ()
    message: str = ""
    seconds: float = 0.0
    resources: Mapping[str, int] | None = field(default=None, hash=False)


def of_exception(error: BaseException) -> Outcome:
    """The outcome that an exception in the first call means."""
    text = f"{type(error).__name__}: {error}"[:MESSAGE]
    module = type(error).__module__
    if isinstance(error, CallFailed):
        return Outcome(Kind.CALL, message=text)
    if type(error).__name__ == "OutOfResources":  # Triton's: shared memory or registers
        return Outcome(Kind.BUILD_ERROR, message=text)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError" or _lacks_memory(str(error)):
        return Outcome(Kind.OUT_OF_MEMORY, message=text)
    if module.startswith(("triton", "torch._inductor", "torch._dynamo")):
        return Outcome(Kind.BUILD_ERROR, message=text)
    return Outcome(Kind.CRASHED, message=text)


def of_death(death: Death) -> Outcome:
    """The outcome that the death of a process means."""
    kind = Kind.KILLED if death.is_from_outside else Kind.CRASHED
    return Outcome(kind, message=f"its process ended: {death.how}. {death.last}".strip().removesuffix("."))


class CallFailed(Exception):
    """The caller's part of a call raised `error`; the configuration is not to blame."""

    def __init__(self, error: Exception) -> None:
        super().__init__(f"{type(error).__name__}: {error}")
        self.error = error


class DeviceHung(RuntimeError):
    """A kernel does not end, and nothing but the end of this process stops it."""


def poisons(error: BaseException) -> bool:
    """Whether, after this error, nothing can be trusted that this process computes on its device.

    torch reports an AcceleratorError or "CUDA error: ...", "HIP error: ..."; Triton reports "Triton Error [CUDA]: ..."
    or "Triton Error [HIP]: ..."; libraries such as cuBLAS name their status. A launch that was rejected, or lacked
    memory, leaves the device usable.
    """
    text = str(error).lower()
    if isinstance(error, DeviceHung) or LIBRARY_ERRORS.search(text):
        return True
    if not (type(error).__name__ == "AcceleratorError" or any(each in text for each in DEVICE_ERRORS)):
        return False
    return not any(each in text for each in HARMLESS)


# A kernel of the library failed, perhaps because of an earlier kernel of another: CUBLAS_STATUS_EXECUTION_FAILED.
LIBRARY_ERRORS = re.compile(
    r"(cu(blas|blaslt|dnn|sparse|solver|fft|rand)|rocblas|hipblas|miopen)_?(status)?_?"
    r"(execution_failed|exec_failed|launch_failure|internal_error|mapping_error)"
)
DEVICE_ERRORS = ("cuda error", "hip error", "triton error [cuda]", "triton error [hip]", "cuda driver error")
HARMLESS = (
    *("out of memory", "invalid argument", "invalid value", "invalid configuration", "invalid device function"),
    *("out of resources", "too many resources", "no kernel image", "kernel image is invalid", "not supported"),
    *("ptx jit compilation failed", "unsupported toolchain", "named symbol not found"),
    *("status_not_supported", "status_invalid_value", "status_alloc_failed", "status_arch_mismatch"),
)


class _OfProgram(BaseException):
    """A handler of a signal, which is the program's own, raised `error`."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


@contextmanager
def signals_pass() -> Iterator[None]:
    """Inside the block an exception that the program's own handler of a signal raises, such as that of an alarm, ends
    the block and is raised by it. Otherwise it would be taken for an error of the configuration that runs just then."""
    ours: dict[int, tuple[Any, Any]] = {}
    if threading.current_thread() is threading.main_thread():  # the only one in which handlers run
        for number in signal.valid_signals():
            handler = signal.getsignal(number)
            if callable(handler) and handler is not signal.default_int_handler:
                ours[int(number)] = handler, _passing(handler)
                signal.signal(number, ours[int(number)][1])
    try:
        yield
    except _OfProgram as passed:
        raise passed.error from None
    finally:
        for known, (before, wrapped) in ours.items():
            if signal.getsignal(known) is wrapped:  # the handler may have set another one
                signal.signal(known, before)


def _passing(handler: Callable[..., Any]) -> Callable[..., Any]:
    def passing(number: int, frame: Any) -> Any:
        try:
            return handler(number, frame)
        except Exception as error:
            raise _OfProgram(error) from error

    return passing


def _lacks_memory(text: str) -> bool:
    return any(each in text.lower() for each in ("can't allocate memory", "out of memory", "cannot allocate memory"))
