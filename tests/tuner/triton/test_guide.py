"""The code in docs/tuning.md runs as it stands."""

import importlib.util
import re

import pytest

from tuner.triton.kernel import SWITCH

pytest.importorskip("triton")


def blocks(root):
    return re.findall(r"```python\n(.*?)```", (root / "docs" / "tuning.md").read_text(encoding="utf-8"), re.DOTALL)


def run(tmp_path, name, code):
    path = tmp_path / f"{name}.py"
    path.write_text(code)
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_kernel_of_ones_own_is_tuned(root, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(SWITCH, "on")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    monkeypatch.delenv("NAS_STORAGE", raising=False)
    small = blocks(root)[0].replace('"num_warps": [4, 2, 8]', '"num_warps": [4]')  # the interpreter is slow

    guide = run(tmp_path, "guide", small)

    assert guide.y.equal(guide.x * 3)
    assert len(guide.scale.decisions) == 1
    assert "it was tuned" in capsys.readouterr().out
    assert (tmp_path / "tessera" / "measurements.db").is_file()


def test_an_autotuned_kernel_is_listened_to(root, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    run(tmp_path, "listening", blocks(root)[1])
    assert capsys.readouterr().out == "0 configurations recorded\n"
