"""A Ray that starts with what units need alone."""

import pytest

SERVICES = ("start_api_server", "start_monitor", "start_log_monitor")


@pytest.fixture(scope="module")
def bare_ray():
    """A head node of Ray starts no dashboard, autoscaler or reader of logs: each imports Ray, and no test asks it.

    If a version of Ray names them otherwise, they start.
    """
    node = pytest.importorskip("ray._private.node").Node
    with pytest.MonkeyPatch.context() as patch:
        for name in SERVICES:
            patch.setattr(node, name, lambda *_, **__: None, raising=False)
        yield
