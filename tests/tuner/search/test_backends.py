"""Results in a folder: what is damaged is left out, and the rest is read."""

import json
import multiprocessing
import os
import sys
import zlib
from random import Random

import pytest

from tuner.device import fingerprint
from tuner.search.folder import COMMON, Folder
from tuner.search.row import Row


def row(**changes):
    known = {"operation": "softmax", "problem": "{}", "dtype": "float32", "implementation": "torch"}
    return Row(**(known | {"configuration": "{}", "source": "8ce8", "milliseconds": 0.5, "samples": [0.5]} | changes))


@pytest.mark.parametrize(
    "damaged",
    [
        b'{"operation": "softmax"',
        b"[" * 100_000,
        b"\xff\xfe",
        b"null",
        b'"text"',
        b" " * (5 * 2**20),
        b'{"device": 3}',
        b'{"device": {"key": ["a"]}}',
    ],
    ids=["cut", "deep", "no text", "null", "a text", "long", "no device", "a device without a name"],
)
def test_a_damaged_line_spoils_no_other(damaged, tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [row()])
    with next(tmp_path.iterdir()).open("ab") as file:
        file.write(b"\n" + damaged)
    folder.add(device, [row(source="9999")])
    assert [each.source for each in folder.rows("softmax")] == ["8ce8", "9999"]


@pytest.mark.parametrize("name", ["milliseconds", "samples", "problem", "failure"])
def test_a_row_with_a_value_of_another_kind_is_left_out(name, tmp_path):
    folder = Folder(tmp_path)
    folder.add(fingerprint("cpu"), [row()])
    file = next(tmp_path.iterdir())
    file.write_text(file.read_text() + "\n" + json.dumps(json.loads(file.read_text()) | {name: {"a": -1}}))
    assert len(folder.rows("softmax")) == 1


DAMAGED = ["{", "[1, 2]", "3", '{"BLOCK": [16]}', '{"BLOCK": {"a": 1}}', "[" * 100_000]


@pytest.mark.parametrize("configuration", DAMAGED, ids=["cut", "list", "number", "of a list", "nested", "deep"])
def test_a_configuration_that_is_none_spoils_no_other_row(store, configuration):
    device = fingerprint("cpu")
    store.add(device, [key(1), key(1, configuration=configuration)])
    store.add(device, [key(1, source="9999")])

    assert [each.source for each in store.rows("softmax", key(1).problem)] == ["8ce8", "9999"]
    assert len(store.every_row()) == 2
    store.pack("softmax", key(1).problem, device)
    assert len(store.rows("softmax")) == 2


def unpacked(file):
    return zlib.decompressobj(zdict=COMMON).decompress(file.read_bytes())


def test_what_earlier_versions_packed_is_read(tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [key(1), key(1, source="9999")])
    folder.pack("softmax", key(1).problem, device)
    (file,) = tmp_path.glob("softmax/*.packed2")
    new, former = folder.rows("softmax"), file.with_suffix(".packed")
    former.write_bytes(zlib.compress(unpacked(file), 9))
    file.unlink()
    assert folder.rows("softmax") == new and len(new) == 2

    folder.add(device, [key(1, source="7777")])
    folder.pack("softmax", key(1).problem, device)
    assert (len(folder.rows("softmax")), file.exists(), former.exists()) == (3, True, False)


def test_what_a_later_version_packed_is_not_replaced(tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    for source in ("8ce8", "9999"):
        folder.add(device, [key(1, source=source)])
        folder.pack("softmax", key(1).problem, device)
        (file,) = tmp_path.glob("softmax/*.packed2")
        if source == "8ce8":
            file.write_bytes(b"something new")

    assert file.with_name(f"{file.name}.unread").read_bytes() == b"something new"
    assert [each.source for each in folder.rows("softmax")] == ["9999"]


def test_a_packed_configuration_that_is_none_is_left_out(tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [key(1, configuration='{"A":1}'), key(1, configuration='{"B":1}')])
    folder.pack("softmax", key(1).problem, device)
    (file,) = tmp_path.glob("softmax/*.packed2")
    file.write_bytes(zlib.compress(unpacked(file).replace(b"[1],", b"[[]],", 1)))

    assert [each.configuration for each in folder.rows("softmax")] in (['{"B":1}'], [])


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes in folders")
def test_what_is_no_file_is_not_waited_for(tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [key(1)])
    (file,) = tmp_path.glob("softmax/*.jsonl")
    os.mkfifo(file.with_suffix(".packed2"))
    assert len(folder.rows("softmax", key(1).problem)) == len(folder.every_row()) == 1


USED = {"registers": 255, "spills": 0, "shared": 49152}


def key(size, **changes):
    return row(problem=json.dumps({"sizes": [["size", size]]}), **changes)


def test_the_rows_of_a_key_are_packed_and_read_alone(tmp_path, monkeypatch):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    samples = [1.0, 3.0, 2.0, 5.0, 4.0]
    written = [
        key(1, configuration='{"A":1,"B":"x"}', samples=samples, milliseconds=3.0, message="checked"),
        key(1, configuration='{"C":true}', samples=samples, milliseconds=3.0, turns="quick/1/2", resources=USED),
        key(1, milliseconds=None, samples=[], failure="wrong", message="y_ptr differs"),
        key(2),
    ]
    folder.add(device, written)
    folder.pack("softmax", written[0].problem, device)
    folder.add(device, [key(1, source="newer")])

    found = Folder(tmp_path).rows("softmax", written[0].problem)

    same = "problem", "configuration", "milliseconds", "failure", "message", "turns", "resources"
    for one, other in zip(found, written[:3], strict=False):
        assert [getattr(one, name) for name in same] == [getattr(other, name) for name in same]
    assert [list(each.samples) for each in found] == [[1.0, 3.0, 5.0], samples, [], [0.5]]
    assert (len(found), found[-1].source, {each.device for each in found}) == (4, "newer", {device.key})
    assert len(Folder(tmp_path).rows("softmax")) == 5

    folder.pack("softmax", written[0].problem, device)
    assert [each.source for each in Folder(tmp_path).rows("softmax", written[0].problem)] == ["8ce8"] * 3 + ["newer"]


def test_a_row_that_is_written_while_another_process_packs_is_not_lost(tmp_path, monkeypatch):
    folder, device, write = Folder(tmp_path), fingerprint("cpu"), os.write
    folder.add(device, [key(1)])

    def late(handle, text):
        monkeypatch.setattr(os, "write", write)
        Folder(tmp_path).pack("softmax", key(1).problem, device)
        return write(handle, text)

    monkeypatch.setattr(os, "write", late)
    folder.add(device, [key(1, source="late")])

    assert [each.source for each in folder.rows("softmax")] == ["8ce8", "late"]


def work(path, process):
    folder, device = Folder(path), fingerprint("cpu")
    for number in range(20):
        folder.add(device, [key(1, source=f"{process} {number}")])
        folder.pack("softmax", key(1).problem, device)


@pytest.mark.skipif(sys.platform != "linux", reason="this system has no forks")
def test_processes_that_pack_the_same_key_lose_nothing(tmp_path):
    ours = multiprocessing.get_context("fork")
    some = [ours.Process(target=work, args=(tmp_path, number)) for number in range(4)]
    for each in some:
        each.start()
    for each in some:
        each.join()

    assert [each.exitcode for each in some] == [0] * 4
    assert len({each.source for each in Folder(tmp_path).rows("softmax")}) == 4 * 20


def test_a_row_for_every_problem_is_read_after_the_rows_of_each_key(tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [key(1)])
    folder.add(device, [key(2)])
    folder.pack("softmax", key(2).problem, device)
    folder.add(device, [row(failure="forgotten", milliseconds=None, samples=[])])

    for size in (1, 2):
        assert [each.failure for each in folder.rows("softmax", key(size).problem)][-1] == "forgotten"


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_search_of_forty_configurations_takes_a_kilobyte(is_compiled, tmp_path):
    folder, device, rng = Folder(tmp_path), fingerprint("cpu"), Random(0)
    rows = []
    for number in range(43):
        values = {"BLOCK": 2 ** rng.randint(4, 8), **{name: rng.randint(1, 10) for name in "ABCDE"}, "num_warps": 4}
        samples = [rng.uniform(1, 1.1) for _ in range(7)]
        more = {"message": "checked on 2 sets of inputs: y_ptr, against triton BLOCK=16 num_warps=4"}
        more |= {"turns": "quick/0123456789ab/0123456789ab"} if number >= 40 else {}
        if is_compiled:
            used = {"registers": 8 * rng.randint(4, 31), "spills": 0, "shared": 1024 * rng.randint(0, 200), "warps": 4}
            more["resources"] = used
        rows.append(key(1, configuration=json.dumps(values, sort_keys=True), samples=samples, **more))
    folder.add(device, rows)
    folder.pack("softmax", rows[0].problem, device)
    (file,) = tmp_path.glob("softmax/[!.]*")
    assert file.stat().st_size <= 1024


def test_damaged_packed_rows_are_left_out(tmp_path):
    folder, device = Folder(tmp_path), fingerprint("cpu")
    folder.add(device, [key(1), key(1)])
    folder.pack("softmax", key(1).problem, device)
    (file,) = tmp_path.glob("softmax/*.packed2")
    content = file.read_bytes()
    for damaged in (b"", content[:-9], b"\0" + content, zlib.compress(b'{"device":{"key":"a"},"rows":[[0]]}')):
        file.write_bytes(damaged)
        assert folder.rows("softmax") == []
