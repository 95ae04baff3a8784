"""The tables of the tuner: devices, and timings of operations and of pieces of architectures."""

from __future__ import annotations

from datetime import datetime
from typing import Any, cast

from sqlalchemy import CheckConstraint, ForeignKey, Index, Table
from sqlalchemy.orm import Mapped, mapped_column

from nas.store.models import Base


class DeviceRow(Base):
    """A device as its fingerprint describes it; `hash` is of the canonical fingerprint."""

    __tablename__ = "device"
    id: Mapped[int] = mapped_column(primary_key=True)
    hash: Mapped[str] = mapped_column(unique=True)
    fingerprint: Mapped[Any]


class MeasurementRow(Base):
    """One configuration of one operation on one problem: either milliseconds, or why there are none.

    Rows are only added; the newest counts. Those with one value in `turns` were timed in turns, so that sample i of
    each was taken in round i. The driver and the versions of torch and Triton are part of the device.
    """

    __tablename__ = "measurement"
    __table_args__ = (
        CheckConstraint("(milliseconds IS NULL) = (failure IS NOT NULL)", name="time_or_failure"),
        CheckConstraint("milliseconds IS NULL OR milliseconds >= 0", name="not_negative"),
        Index(None, "operation", "device_id"),
        Index(None, "token"),
    )
    id: Mapped[int] = mapped_column(primary_key=True)
    operation: Mapped[str]
    problem: Mapped[str]  # canonical JSON: sizes, flags, device, threads
    dtype: Mapped[str | None]
    implementation: Mapped[str]
    configuration: Mapped[str]  # canonical JSON
    source: Mapped[str]  # hash of the code that ran
    device_id: Mapped[int] = mapped_column(ForeignKey("device.id"))
    milliseconds: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]
    samples: Mapped[list[Any] | None]  # milliseconds, in the order they were taken
    failure: Mapped[str | None]  # what kind it was
    message: Mapped[str | None]  # what it said
    turns: Mapped[str | None]
    token: Mapped[str | None]  # of the call that made the row: a retry after a lost connection knows its own
    created_at: Mapped[datetime]


device = cast(Table, DeviceRow.__table__)
measurement = cast(Table, MeasurementRow.__table__)
