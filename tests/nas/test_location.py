"""A command that a message suggests works as it stands, wherever the study database is."""

from types import SimpleNamespace

import pytest

from nas import location
from nas.store.database.engine import parse


def at(where):
    return SimpleNamespace(database=SimpleNamespace(url=parse(where)))


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("runs/s.db", "nas best s"),
        ("sqlite:///runs/s.db", "nas best s"),
        ("runs/other.db", "nas best s --storage runs/other.db"),
        ("my runs/s.db", "nas best s --storage 'my runs/s.db'"),
        ("postgresql://me@host/nas", "nas best s --storage postgresql://me@host/nas"),
        ("postgresql://me:secret@host/nas", "nas best s --storage 'postgresql://me:***@host/nas'"),
    ],
)
def test_a_suggested_command_names_a_database_that_is_not_found_by_the_name_of_the_study(where, expected, monkeypatch):
    monkeypatch.delenv(location.VARIABLE, raising=False)
    assert location.command(at(where), "s", "best", "s") == expected


def test_a_suggested_command_leaves_out_the_database_of_the_environment(monkeypatch):
    monkeypatch.setenv(location.VARIABLE, "other.db")
    assert location.command(at("sqlite:///other.db"), "s", "best", "s") == "nas best s"
    assert location.trial_name(at("runs/s.db"), "s", SimpleNamespace(address="3")) == "s:3 --storage runs/s.db"
    monkeypatch.setenv(location.VARIABLE, "mongodb://host/nas")  # with --storage the environment does not matter
    assert location.command(at("runs/s.db"), "s", "best", "s") == "nas best s --storage runs/s.db"
