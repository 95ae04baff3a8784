"""Ray itself fails: the search ends with an error, and the same command continues it."""

import pytest

ray = pytest.importorskip("ray")

import psutil  # noqa: E402

from nas.engine import launch  # noqa: E402
from nas.errors import NasError  # noqa: E402
from nas.runners._ray import RayRunner  # noqa: E402
from nas.runners.inline import InlineRunner  # noqa: E402
from nas.runners.ray import RayOptions  # noqa: E402
from nas.store import TrialState, open_reader  # noqa: E402
from nas.work import Outcome  # noqa: E402

# The warnings are Ray's own.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.usefixtures("bare_ray")]


def test_a_search_whose_ray_was_killed_ends_with_a_sentence_and_goes_on_when_it_is_started_again(describe):
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

    config = describe(budget="{trials: 4}")
    with pytest.raises(NasError, match=r"Ray on this machine failed: .*no attempt was counted.*run the same search"):
        launch.search(config, quiet=True, runner=Killing(RayOptions(workers=1), run=run))
    assert not ray.is_initialized()
    with open_reader(config.storage) as store:
        assert not [each for each in store.trials(store.study(config.study).id) if each.state is TrialState.FAILED]
    with launch.search(config, quiet=True, runner=InlineRunner(run)) as result:
        trials = result.store.trials(result.study.id)
        units = [result.store.units(result.study.id, trial.number)[0] for trial in trials]
    assert [trial.state for trial in trials] == [TrialState.COMPLETE] * 4
    assert {unit.attempt - unit.released for unit in units} == {1}
