"""What a unit needs of a node of a cluster."""

import pytest

from nas.errors import NasError
from nas.runners import _ray_needs


def test_the_places_of_probes_add_to_what_a_unit_needs():
    needs = {"num_cpus": 2, "num_gpus": 0, "memory": None, "resources": {"rack": 1}}
    place = {"latency": {"on": {"resources": {"quiet": 1, "GPU": 1, "CPU": 1}}}}
    others = {"latency": {"on": None}}, {"latency": {"on": {"machine": "laptop"}}}
    found = _ray_needs.with_places(needs, ["loss", {"flops": {}}, place, *others])
    assert found == {"num_cpus": 2, "num_gpus": 1, "memory": None, "resources": {"rack": 1, "quiet": 1}}
    assert _ray_needs.with_places(needs, ()) == needs


def test_needs_have_the_names_of_nodes():
    needs = {"num_cpus": 0.5, "num_gpus": 0, "memory": None, "resources": {"quiet": 1}}
    assert _ray_needs.by_name(needs) == {"CPU": 0.5, "quiet": 1}
    assert _ray_needs.by_name(needs | {"memory": 9, "resources": None}) == {"CPU": 0.5, "memory": 9}


def test_what_ray_refuses_is_told_with_its_reason():
    from nas.runners._ray_runner import _unit

    needs = {"num_cpus": 1, "num_gpus": 0, "memory": None, "resources": {"TPU": 1.5}}
    refused = r"Ray refuses a unit that needs CPU 1, TPU 1.5: .*not a supported chip configuration.*\(`on`\)"
    with pytest.raises(NasError, match=refused), _ray_needs.accepted(needs):
        _unit.options(**needs)
