"""The store against a simple model of it: random calls, with the process or its connection lost between two statements.

NAS_EXAMPLES=1000 runs more examples than the few of the test suite, NAS_EXPLORE=1 other ones each time.
"""

import contextlib
import copy
import itertools
import os

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule, run_state_machine_as_test
from sqlalchemy import event, select
from sqlalchemy.exc import SQLAlchemyError

from nas.documents import Documents
from nas.store import TrialAdded, UnitKind, open_reader, open_store
from nas.store.models import metadata
from nas.work import Progress

OBJECTIVES = [{"name": "bits", "direction": "minimize"}]
OWNERS = ("a", "b", "c")
EXAMPLES = {"sqlite": 4, "postgresql": 3}
STEPS = 20  # calls in an example
ALIVE, EXPIRED = 600.0, -1.0  # seconds of a lease


def held(reader, name, model):
    """All that the database holds about a study, as `Model.holds` says it."""
    study = reader.study(name)
    verdict = reader.verdict(study.id)
    trials = reader.trials(study.id)
    return {
        "trials": [(*model.trial(each), dict(each.values), dict(each.cheap_values)) for each in trials],
        "ended": [(*model.ended(each), dict(each.values or {})) for each in reader.results_since(study.id)],
        "open": sorted(map(model.open, reader.unfinished(study.id))),
        "documents": sorted(reader.documents(study.id, [each.number for each in trials], "validation")),
        "rest": (
            *(study.sequence, study.ending, verdict and verdict.document),
            [each.text for each in reader.space_versions(study.id)],
        ),
    }


def rows(reader):
    """Every row of every table."""

    def work(connection):
        return {table.name: connection.execute(select(table)).fetchall() for table in metadata.sorted_tables}

    return reader.database.read(work)


class Ended(BaseException):
    """The process has ended: nothing of it runs any more."""


class Fault:
    """Ends the process, or its connection once, at a point of the next transaction.

    The points are: before each statement, before the commit, and between the commit and its answer.
    """

    def __init__(self, store, point, ends):
        self.store, self.point, self.ends = store, point, ends
        self.has_come = self.is_committed = False

    def __enter__(self):
        engine = self.store.database.engine
        self._commit = engine.dialect.do_commit
        event.listen(engine, "before_cursor_execute", self._statement)
        engine.dialect.do_commit = self._committed
        return self

    def __exit__(self, *_):
        engine = self.store.database.engine
        event.remove(engine, "before_cursor_execute", self._statement)
        engine.dialect.do_commit = self._commit

    def _statement(self, connection, *_):
        self._pass(connection.connection)

    def _committed(self, connection):
        self._pass(connection)
        self._commit(connection)
        self.is_committed = True
        self._pass(connection)

    def _pass(self, connection):
        self.point -= 1
        if self.point == -1:
            self.has_come = True
            connection.driver_connection.close()  # the database undoes what is not committed
            if self.ends:
                raise Ended
            if self.is_committed:
                self._commit(connection)  # fails: the answer is lost


seconds = st.sampled_from([ALIVE, ALIVE, EXPIRED])
owners = st.sampled_from(OWNERS)
maybe_owner = st.sampled_from([*OWNERS, None])
place = st.integers(0, 99)
several = st.lists(place, min_size=1, max_size=3)
wrong = st.sampled_from([*[None] * 6, "owner", "attempt"])
# Nothing, the end of the process at every point of the call, or of its connection at one point.
faults = st.sampled_from([*[None] * 4, "process", "process", *range(4)])
a_trial = st.fixed_dictionaries(
    {
        "again": st.sampled_from([False, False, False, True]),
        "hash": st.integers(0, 30),
        "arm": st.sampled_from(["main", "random"]),
        "purpose": st.sampled_from(["search", "final"]),
        "kind": st.sampled_from(["train", "train", "probe"]),
        "owner": maybe_owner,
        "lease": seconds,
        "limit": st.sampled_from([None, None, None, 2]),
        "failure": st.sampled_from([None, None, None, None, "build error"]),
    }
)


class Machine(RuleBasedStateMachine):
    """Makes the same calls of the store and of the model."""

    url = ""
    Model = None  # a fixture of the conftest
    studies = 0

    @initialize(fault=faults, trials=st.lists(a_trial, min_size=2, max_size=4))
    def begin(self, fault, trials):
        type(self).studies += 1
        self.name = f"study {self.studies}"
        self.model, self.ids = self.Model(), {}
        self.store, self.reader = open_store(self.url), open_reader(self.url)
        self.call(fault, "create_study", (), self._create)
        self.study_id = self.reader.study(self.name).id
        for each in trials:
            self.add_trial(None, each)

    def _create(self):
        self.store.create_study(self.name, {}, "kind: decoder", 0, OBJECTIVES)

    def teardown(self):
        if hasattr(self, "model"):
            self.check()
            self.store.close()
            self.reader.close()

    def call(self, fault, name, arguments, real):
        """Call the model and the store. After a fault, the database is as before the call, or as after it."""
        after = copy.deepcopy(self.model)
        expected = getattr(after, name)(*arguments)
        if fault is None:
            assert real() == expected
        elif fault == "process" or self.store.database.dialect == "sqlite":  # whose connections are not lost
            self._end_everywhere(real)
        else:
            with Fault(self.store, fault, ends=False) as met:
                answer = real()
            lost = name == "release" and met.is_committed  # tried again, it holds nothing that it could give back
            assert answer == expected or (lost and answer == [])
        self.model = after
        if fault is not None:
            self.check()

    def _end_everywhere(self, real):
        """End the process at every point of a call. Before the commit nothing is there, after it everything."""
        before = rows(self.reader)
        for point in itertools.count():
            met = Fault(self.store, point, ends=True)
            with met, contextlib.suppress(Ended, SQLAlchemyError):
                real()
            assert met.has_come
            self.store.close()
            if met.is_committed:
                self.store = open_store(self.url)
                return
            assert rows(self.reader) == before

    def check(self):
        """The database holds what the model says; checked after each fault and at the end, which is enough."""
        assert held(self.reader, self.name, self.Model) == self.model.holds()

    @rule(fault=faults, what=st.sampled_from(["space", "ending", "verdict"]), text=st.sampled_from(["x", "y"]))
    def change(self, fault, what, text):
        store, study = self.store, self.study_id
        call = {
            "space": lambda: store.add_space_version(study, text),
            "ending": lambda: store.update_study(study, ending={"why": text}),
            "verdict": lambda: store.add_verdict(study, {"word": text}),
        }[what]
        self.call(fault, "change", (what, text), call)

    @rule(fault=faults, new=a_trial)
    def add_trial(self, fault, new):
        number = max(len(self.model.trials) - new["again"], 0)
        hash = f"{self.studies}-{new['hash']}"
        rest = [new[name] for name in ("arm", "purpose", "kind", "owner", "lease", "limit", "failure")]
        self.call(fault, "add_trial", (number, hash, *rest), lambda: self._add(number, hash, *rest))

    def _add(self, number, hash, arm, purpose, kind, owner, lease, limit, failure):
        added = self.store.add_trial(
            self.study_id, number, (hash, "width: 1"), seed=0, purpose=purpose, operator="random", choices={},
            known_results=0, steps=10, arm=arm, kind=UnitKind(kind), owner=owner, lease_seconds=lease, limit=limit,
            failure=failure and (failure, "text"),
        )  # fmt: skip
        if isinstance(added, TrialAdded):
            return "added", added.number, added.unit and self.Model.told(added.unit)
        return added.reason, added.number

    @precondition(lambda self: self._ready())
    @rule(fault=faults, which=place, further=st.sampled_from([0, 1, 1, 1, 2]), owner=maybe_owner, lease=seconds)
    def promote(self, fault, which, further, owner, lease):
        trials = self._ready() if further == 1 else self.model.trials
        trial = trials[which % len(trials)]
        rung = (0 if trial.rung is None else trial.rung) + further
        trial_id = self.reader.trial(self.study_id, trial.number).id

        def real():
            unit = self.store.promote(trial_id, rung, 10 * (rung + 1), owner=owner, lease_seconds=lease)
            return unit and self.Model.told(unit)

        self.call(fault, "promote", (trial.number, rung, owner, lease), real)

    @precondition(lambda self: self._ready())
    @rule(fault=faults)
    def stop_trials(self, fault):
        self.call(fault, "stop_trials", (), lambda: self.store.stop_trials(self.study_id))

    @rule(fault=faults, owner=owners, count=st.integers(1, 3), lease=seconds, dead=st.sets(owners, max_size=2))
    def lease(self, fault, owner, count, lease, dead):
        def real():
            return [self.Model.told(unit) for unit in self.store.lease(self.study_id, owner, count, lease, dead)]

        self.call(fault, "lease", (owner, count, lease, dead), real)

    @rule(
        fault=faults,
        several=several,
        owner=owners,
        lease=seconds,
        step=st.none() | place,
    )
    def renew(self, fault, several, owner, lease, step):
        if ids := self._ids(several):
            progress = {} if step is None else dict.fromkeys(ids, Progress(step, 100, 1.0, 2.0))

            def real():
                return sorted(ids[each] for each in self.store.renew(list(ids), owner, lease, progress))

            self.call(fault, "renew", (list(ids.values()), owner, lease, step), real)

    @rule(fault=faults, several=several, owner=owners)
    def release(self, fault, several, owner):
        if ids := self._ids(several):

            def real():
                return sorted(ids[each] for each in self.store.release(list(ids), owner))

            self.call(fault, "release", (list(ids.values()), owner), real)

    @rule(fault=faults, which=place, wrong=wrong, value=place,
          last=st.booleans(), documents=st.booleans())  # fmt: skip
    def finish(self, fault, which, wrong, value, last, documents):
        if found := self._holder(which, wrong):
            id_, key, owner, attempt = found
            probe = key[1] == "probe"
            scores = {"validation": Documents("bits", ("one", "two"), [1.0, 2.0], [1.0, 1.0])} if documents else {}

            def real():
                return self.store.finish(
                    id_, owner, attempt, {"cheap" if probe else "bits": float(value)}, {"speed": 1.0}, last=last,
                    then=10 if probe else None, curve=[(1, 2.0)], checkpoint=("file:///x", "0"), by_document=scores,
                )  # fmt: skip

            self.call(fault, "finish", (key, owner, attempt, float(value), last, documents), real)

    @rule(fault=faults, which=place, wrong=wrong, requeue=st.booleans(),
          most=st.integers(1, 3))  # fmt: skip
    def fail(self, fault, which, wrong, requeue, most):
        if found := self._holder(which, wrong):
            id_, key, owner, attempt = found

            def real():
                return self.store.fail(id_, owner, attempt, "crashed", "text", 1.0, requeue=requeue, max_attempts=most)

            self.call(fault, "fail", (key, owner, attempt, requeue, most), real)

    def _ready(self):
        """The trials that may be promoted, or stopped."""
        open_ = {unit.number for unit in self.model.units if unit.sequence is None}
        return [each for each in self.model.trials if each.state == "running" and each.number not in open_]

    def _holder(self, which, wrong):
        """A unit with the holder of its lease, or with another owner or attempt; None if there is no unit."""
        for id_, key in self._ids([which]).items():
            unit = self.model._unit(key)
            return id_, key, "other" if wrong == "owner" else unit.owner or "a", unit.attempt - (wrong == "attempt")
        return None

    def _ids(self, several):
        """{id: key} of some units: mostly of those that run."""
        running = [unit for unit in self.model.units if unit.state == "running"]
        units = running if running and several[0] % 5 else self.model.units
        keys = {units[each % len(units)].key for each in several} if units else ()
        for number in {key[0] for key in keys if key not in self.ids}:
            found = self.reader.units(self.study_id, number)
            self.ids |= {(number, str(each.kind), each.rung): each.id for each in found}
        return {self.ids[key]: key for key in keys}


def test_the_store_does_what_a_simple_model_says_wherever_a_process_or_a_connection_ends(request, url, model):
    kind = request.node.callspec.params["url"]
    machine = type("Machine", (Machine,), {"url": url, "Model": model})
    examples = int(os.environ.get("NAS_EXAMPLES") or EXAMPLES[kind])
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=STEPS))

    with open_reader(url) as reader:
        assert reader.faults() == []
