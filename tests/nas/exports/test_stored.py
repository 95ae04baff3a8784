"""An architecture as its database keeps it says the same as one that is read from its text."""

import pytest
from sqlalchemy import text

from nas.errors import NasError
from nas.exports.origin import stored
from nas.exports.winner import winner
from nas.location import open_existing
from nas.store import open_store
from searchspace.errors import SpaceError
from searchspace.model.architecture import Architecture

SEQ2SEQ = """
  kind: encoder_decoder
  width: !choice [8, 16]
  encoder: {feed_forward: {expand: !int [1, 4]}}
  decoder: {attention: {over: memory, heads: 1}}
"""
HALTING = """
  kind: decoder
  width: !choice [8, 16]
  body: {halting: {of: {feed_forward: {expand: !int [1, 4]}}, times: 3}}
"""


def change(storage, statement):
    with open_store(storage) as store, store.database.engine.begin() as connection:
        connection.execute(text(statement))


@pytest.mark.parametrize(
    "of_search",
    [
        {},
        {"space": SEQ2SEQ, "task": "{reversal: {length: 12}}", "objectives": "[loss, flops]"},
        {"space": HALTING, "objectives": "[loss, flops]"},
    ],
    ids=["decoder", "encoder_decoder", "halting"],
)
def test_a_drawing_and_the_text_give_the_same(of_search, describe, search):
    config = describe(**of_search, budget="{trials: 4}")
    search(config).close()
    store, study = open_existing("tried", config.storage)
    with store:
        known = [(stored(store, study, each), each) for each in store.trials(study.id)]
        headers = [dict(winner(store, study, each.number).origin) for _, each in known]
    change(config.storage, "DELETE FROM drawing")
    store, study = open_existing("tried", config.storage)
    with store:
        for (one, trial), header in zip(known, headers, strict=True):
            read = stored(store, study, trial)
            assert (one.hash, one.text(), one.costs) == (read.hash, read.text(), read.costs)
            assert one.architecture == Architecture.parse(trial.architecture)
            again = dict(winner(store, study, trial.number).origin)
            assert header | {"exported_at": 0} == again | {"exported_at": 0}


def test_a_text_that_cannot_be_read_and_has_no_drawing_is_not_exported(describe, search):
    config = describe(budget="{trials: 1}")
    search(config).close()
    change(config.storage, "DELETE FROM drawing")
    change(config.storage, "UPDATE architecture SET text = 'kind: nothing'")
    store, study = open_existing("tried", config.storage)
    with store, pytest.raises((SpaceError, NasError), match="nothing"):
        stored(store, study, store.trial(study.id, 0))
