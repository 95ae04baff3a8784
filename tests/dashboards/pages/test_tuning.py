"""What the page of the tuner draws."""

from itertools import accumulate

import pytest

from dashboards.pages.tuning import _progress
from nas.store.measurements import Measurement


@pytest.mark.parametrize("count", [3, 5000])
def test_the_best_so_far_never_gets_worse_however_many_measurements_there_are(count):
    times = [float(1 + (7 * number) % 11) for number in range(count)]
    some = [
        Measurement(
            operation="softmax", problem="{}", dtype="float32", implementation="triton", configuration="{}",
            source="", milliseconds=time, device="gpu",
        )
        for time in times
    ]  # fmt: skip
    best, every = _progress(some, {"gpu": "A GPU"}).series
    assert every.y == times and list(best.y) == list(accumulate(times, min))
