"""What becomes of an error of Ray. The messages are those of Ray 2.60, shortened."""

import pytest

ray = pytest.importorskip("ray")

from nas.errors import NasError  # noqa: E402
from nas.runners import _ray_errors  # noqa: E402
from nas.work import FailureKind, Work  # noqa: E402

FULL = """ 2 worker(s) were killed due to the node running low on memory. Memory on the node (IP: 192.0.2.2) was \
4.82GB used / 23.54GB limit (0.204892)
OOM kill reason: Memory usage 5150453760B exceeded threshold of 5131129856B (20.3% of 25276502016B limit)
Ray killed 2 worker(s) based on the killing policy
Considered workers: [
Selected to kill: (Task: lease ID=00, task name=trial 3 rung 0 of s, pid=4949, actual memory used=1.27GB)
]
Top 10 memory users: PID	MEM(GB)	COMMAND
{users}
Refer to the documentation on how to address the out of memory issue: https://docs.ray.io/en/latest/
"""
USERS = """4949	1.27	ray::trial 3 rung 0 of s
3896	0.40	/usr/bin/client --password hunter2
4950	0.15	ray::trial 4 rung 1 of s"""


def work(trial, rung):
    return Work(study="s", trial=trial, rung=rung, architecture="", task={}, recipe={}, steps=1, horizon=1, seed=0)


def full(users=USERS):
    return ray.exceptions.OutOfMemoryError(FULL.format(users=users))


def test_the_unit_that_used_the_most_memory_is_out_of_memory():
    failure = _ray_errors.failure(full(), work(3, 0))
    assert failure.kind is FailureKind.OUT_OF_MEMORY
    assert "4.82 of 23.54 GB" in failure.message and "used 1.27 GB" in failure.message


def test_a_unit_that_was_ended_for_the_memory_of_another_one_is_tried_again():
    failure = _ray_errors.failure(full(), work(4, 1))
    assert failure.kind is FailureKind.WORKER_LOST
    assert "used 0.15 GB" in failure.message and "Most was used by trial 3 rung 0: 1.27 GB" in failure.message


def test_a_process_that_is_no_unit_is_not_named():
    failure = _ray_errors.failure(full(USERS.replace("0.40", "9.40")), work(3, 0))
    assert failure.kind is FailureKind.WORKER_LOST
    assert "a process that is not a unit: 9.4 GB" in failure.message


def test_without_a_list_of_processes_the_unit_is_out_of_memory():
    assert _ray_errors.failure(full(""), work(3, 0)).kind is FailureKind.OUT_OF_MEMORY


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (ray.exceptions.WorkerCrashedError(), FailureKind.WORKER_LOST),
        (ray.exceptions.LocalRayletDiedError(), FailureKind.INFRASTRUCTURE),
        (ray.exceptions.NodeDiedError("The node died."), FailureKind.INFRASTRUCTURE),
        (ray.exceptions.RaySystemError("Broken pipe"), FailureKind.INFRASTRUCTURE),
    ],
)
def test_what_is_not_the_units_fault_is_tried_again(error, kind):
    failure = _ray_errors.failure(error, work(0, 0))
    assert failure.kind is kind and failure.kind.retried


@pytest.mark.parametrize("error", [full(), ray.exceptions.NodeDiedError(str(full())), full("1\t2.0\tvim secret.txt")])
def test_no_text_holds_the_command_line_of_another_process(error):
    failure = _ray_errors.failure(error, work(4, 1))
    assert "hunter2" not in failure.message and "secret" not in failure.message


def test_an_error_that_the_user_has_to_correct_is_raised():
    error = ray.exceptions.RayTaskError("unit", "traceback", NasError("The disk is full."))
    with pytest.raises(NasError, match="The disk is full"):
        _ray_errors.failure(error, work(0, 0))
