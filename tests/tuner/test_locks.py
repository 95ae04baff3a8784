"""Locks between processes, here between threads, which hold them alike."""

import threading
import time

import pytest

from tuner.locks import holding


def test_a_second_holder_waits_and_says_so(tmp_path):
    held, said = threading.Event(), []

    def second():
        held.wait()
        with holding(tmp_path / "lock", 10.0) as waited:
            said.append(waited)

    thread = threading.Thread(target=second)
    thread.start()
    with holding(tmp_path / "lock", 0.0) as waited:
        held.set()
        time.sleep(0.1)
        said.append(waited)
    thread.join()
    assert said == [False, True]


def test_a_holder_that_waited_in_vain_neither_holds_nor_deletes_the_file(tmp_path):
    file = tmp_path / "lock"
    with holding(file, 0.0, removes=True):
        with holding(file, 0.1, removes=True) as waited:
            assert waited is None
        assert file.exists()
    assert not file.exists()


def test_only_its_owner_can_read_the_file_and_links_are_not_followed(tmp_path):
    with holding(tmp_path / "lock", 0.0):
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    (tmp_path / "mine").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    with pytest.raises(OSError, match="link"), holding(tmp_path / "link", 0.0):
        pass
    assert (tmp_path / "mine").read_text() == "kept"
