"""What a unit needs and what a cluster has for it, without a cluster: its nodes are those of a list."""

import pytest

ray = pytest.importorskip("ray")

from nas.errors import NasError  # noqa: E402
from nas.runners import _ray_cluster  # noqa: E402
from nas.runners._ray_cluster import RayCluster  # noqa: E402
from nas.runners.ray import RayOptions  # noqa: E402

PROBE = {"CPU": 1, "quiet": 0.5}


@pytest.fixture
def nodes(monkeypatch):
    """The nodes of every cluster, which a test may change."""
    made = [{"CPU": 1.0}]
    monkeypatch.setattr(_ray_cluster, "_connect", lambda options: None)
    monkeypatch.setattr(_ray_cluster, "_alive", lambda: made)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    return made


def test_a_unit_that_waits_for_a_node_is_told_once_until_the_node_was_there(nodes, monkeypatch):
    told = []
    monkeypatch.setattr(_ray_cluster.log, "warning", lambda text, *values: told.append(text % values))
    cluster = RayCluster(RayOptions(address="head:1"))
    for _ in range(2):
        cluster.look_for(PROBE)
    assert told == [
        "No node of the Ray cluster has all of CPU 1, quiet 0.5, so a unit that needs them waits until one joins."
    ]
    nodes.append({"CPU": 1.0, "quiet": 1.0})
    cluster.look_for(PROBE)
    nodes.pop()
    cluster.look_for(PROBE)
    assert len(told) == 2
    assert RayCluster(RayOptions(address="head:1", workers=3, cpus=2)).units_at_once() == 0
    assert "has all of CPU 2, so" in told[2]


def test_a_unit_that_waits_for_a_node_that_cannot_come_ends_the_search(nodes):
    cluster = RayCluster(RayOptions())
    cluster.look_for({"CPU": 1})
    with pytest.raises(NasError, match=r"no worker with CPU 1, quiet 0\.5.*no other node can join"):
        cluster.look_for(PROBE)
    nodes.clear()  # Ray has just ended
    cluster.look_for(PROBE)


def test_units_that_need_a_tenth_of_a_core_are_ten_at_once(nodes):
    assert RayCluster(RayOptions(cpus=0.1)).units_at_once() == 10
    nodes[0]["CPU"] = 0.3
    assert RayCluster(RayOptions(cpus=0.1)).units_at_once() == 3
    assert RayCluster(RayOptions(cpus=1e-5)).units_at_once() == 3000, "Ray itself refuses less than a ten-thousandth"


def test_the_places_of_probes_add_to_what_a_unit_needs():
    needs = {"num_cpus": 2, "num_gpus": 0, "memory": None, "resources": {"rack": 1}}
    place = {"latency": {"on": {"resources": {"quiet": 1, "GPU": 1, "CPU": 1}}}}
    others = {"latency": {"on": None}}, {"latency": {"on": {"machine": "laptop"}}}
    found = _ray_cluster.with_places(needs, ["loss", {"flops": {}}, place, *others])
    assert found == {"num_cpus": 2, "num_gpus": 1, "memory": None, "resources": {"rack": 1, "quiet": 1}}
    assert _ray_cluster.with_places(needs, ()) == needs


def test_needs_have_the_names_of_nodes():
    needs = {"num_cpus": 0.5, "num_gpus": 0, "memory": None, "resources": {"quiet": 1}}
    assert _ray_cluster.by_name(needs) == {"CPU": 0.5, "quiet": 1}
    assert _ray_cluster.by_name(needs | {"memory": 9, "resources": None}) == {"CPU": 0.5, "memory": 9}


def test_what_ray_refuses_is_told_with_its_reason():
    from nas.runners._ray import _unit

    needs = {"num_cpus": 1, "num_gpus": 0, "memory": None, "resources": {"TPU": 1.5}}
    refused = r"Ray refuses a unit that needs CPU 1, TPU 1.5: .*not a supported chip configuration.*\(`on`\)"
    with pytest.raises(NasError, match=refused), _ray_cluster.accepted(needs):
        _unit.options(**needs)
