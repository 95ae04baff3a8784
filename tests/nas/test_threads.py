"""All that takes a number of threads refuses one with which torch would end the process."""

import pytest
import torch

from nas.latency.runs import on_threads
from nas.threads import MOST_THREADS, checked_threads
from nas.training.determinism import deterministic
from tuner.measure.worker import Settings


@pytest.mark.parametrize("number", [0, -1, 1.0, True, "4", MOST_THREADS + 1, 100_000], ids=repr)
@pytest.mark.parametrize(
    "use",
    [
        checked_threads,
        lambda threads: Settings(threads=threads),
        lambda threads: on_threads(threads).__enter__(),
        lambda threads: deterministic(threads, torch.device("cpu")).__enter__(),
    ],
    ids=["checked", "tuner", "latency", "training"],
)
def test_a_number_of_threads_that_torch_cannot_use_is_refused(use, number):
    before = torch.get_num_threads()
    with pytest.raises(ValueError, match=r"threads must be at (least 1|most 1,024), but got"):
        use(number)
    assert torch.get_num_threads() == before


def test_as_many_as_torch_can_use_are_accepted():
    assert (checked_threads(1), checked_threads(MOST_THREADS)) == (1, MOST_THREADS)
    assert Settings().threads is None
