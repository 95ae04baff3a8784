"""Ray itself fails: its own cluster is started again, one at an address is waited for, and at last the search ends."""

import pytest

ray = pytest.importorskip("ray")

import psutil  # noqa: E402

from nas.engine import launch  # noqa: E402
from nas.errors import NasError  # noqa: E402
from nas.runners import _ray_cluster  # noqa: E402
from nas.runners._ray_cluster import RayCluster  # noqa: E402
from nas.runners._ray_runner import RayRunner  # noqa: E402
from nas.runners.ray import RayOptions  # noqa: E402
from nas.store import TrialState  # noqa: E402
from nas.work import Outcome  # noqa: E402

# The warnings are Ray's own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("bare_ray")]


def test_a_search_goes_on_when_its_local_ray_was_killed(describe):
    def run(work, progress):
        return Outcome(trial=work.trial, rung=0, seconds=1.0, metrics={"loss": float(len(work.architecture))})

    class Killing(RayRunner):
        """Kills the local process of Ray before the second unit."""

        submitted = 0

        def submit(self, work):
            self.submitted += 1
            if self.submitted == 2:
                processes = [each for each in psutil.Process().children(recursive=True) if each.name() == "raylet"]
                for each in processes:
                    each.kill()
                psutil.wait_procs(processes)
            super().submit(work)

    runner = Killing(RayOptions(workers=1), run=run)
    with launch.search(describe(budget="{trials: 4}"), quiet=True, runner=runner) as result:
        trials = result.store.trials(result.study.id)
        units = [result.store.units(result.study.id, trial.number)[0] for trial in trials]
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    assert {unit.attempt - unit.released for unit in units} == {1} and sum(unit.released for unit in units) >= 3
    assert not ray.is_initialized()


@pytest.mark.parametrize(
    ("address", "tries", "text"),
    [(None, 3, "Ray on this machine failed, was started again 3 times"), ("head:1", 10, "cluster at 'head:1' failed")],
)
def test_after_several_times_in_vain_the_search_ends_with_an_error(address, tries, text, monkeypatch):
    connected = []

    def connect(options):
        connected.append(options)
        if len(connected) > 1:
            raise NasError("No Ray there.")

    monkeypatch.setattr(_ray_cluster, "_connect", connect)
    monkeypatch.setattr(_ray_cluster, "LONGEST_PAUSE", 0.001)
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "shutdown", lambda: None)
    cluster = RayCluster(RayOptions(address=address))
    with pytest.raises(NasError, match=f"{text}.*The raylet died.*run the same search") as caught:
        while len(connected) < 100:
            assert not cluster.again(0.01, "The raylet died.")
    assert len(connected) == 1 + tries and caught.value.exit_code == 1
