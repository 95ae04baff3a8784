"""The tables of the tuner: devices, and timings of operations and of pieces of architectures."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, Double, ForeignKey, Index, Integer, Table, Text

from nas.store.models import key, metadata, optional, required
from nas.store.types import Document, Moment

# A device as its fingerprint describes it; `hash` is of the canonical fingerprint.
device = Table(
    "device",
    metadata,
    key("id"),
    required("hash", Text, unique=True),
    required("fingerprint", Document),
)

# One configuration of one operation on one problem: either milliseconds, or the reason why there are none.
#
# Rows are only added; the newest counts. Rows with the same value in `turns` were timed in turns: sample i of each was
# taken in round i. The driver and the versions of torch and Triton are part of the device.
measurement = Table(
    "measurement",
    metadata,
    key("id"),
    required("operation", Text),
    required("problem", Text),  # canonical JSON: sizes, flags, device, threads
    optional("dtype", Text),
    required("implementation", Text),
    required("configuration", Text),  # canonical JSON
    required("source", Text),  # hash of the code that ran
    required("device_id", Integer, ForeignKey("device.id")),
    optional("milliseconds", Double),
    optional("low", Double),
    optional("high", Double),
    optional("samples", Document),  # milliseconds, in the order in which they were taken
    optional("failure", Text),  # its kind
    optional("message", Text),
    optional("turns", Text),
    optional("resources", Document),  # of the compiled kernels: registers, spills, shared memory, warps
    optional("token", Text),  # of the call that made the row: a retry after a lost connection finds its own row by it
    required("created_at", Moment),
    CheckConstraint("(milliseconds IS NULL) = (failure IS NOT NULL)", name="time_or_failure"),
    CheckConstraint("milliseconds IS NULL OR milliseconds >= 0", name="not_negative"),
    Index(None, "operation", "device_id"),
    Index(None, "token"),
)
