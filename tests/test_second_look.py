"""What CI excuses, and what not: each in a project of its own, with pytest as it is."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import second_look

ROOT = Path(__file__).parents[1]
EXCUSED_MAX = 0
"""How many tests may stand in the list: a number that only falls."""

TESTS = """
from pathlib import Path
import pytest

def times(name):
    path = Path(name)
    path.write_text(path.read_text() + "x" if path.exists() else "x")
    return len(path.read_text())

@pytest.mark.nats
@pytest.mark.parametrize("word", ["a b", "c"])
def test_once(word):
    assert word == "c" or times("once") > 1

@pytest.mark.nats
def test_new():
    assert times("new") > 1

@pytest.mark.nats
def test_now_and_then():
    assert times("now") not in (1, 4)

def test_bare():
    assert times("bare") > 1

@pytest.mark.nats
@pytest.mark.parametrize("number", range(4))
def test_many(number):
    assert times(f"many{number}") > 1

def test_stop():
    pytest.exit("cut short", returncode=2)
"""
REASONS = {f"test_it.py::test_{name}": "waits 1 s" for name in ("once", "now_and_then", "many")}
INI = "[pytest]\nmarkers =\n    nats: x\n    chaos: x\n    spark: x\n"


@pytest.fixture(autouse=True)
def _with_this_project(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def looked_at(root: Path, chosen: str, *args: str) -> int:
    (root / "pytest.ini").write_text(INI)
    (root / "test_it.py").write_text(TESTS)
    (root / "conftest.py").write_text("from tests.second_look import pytest_sessionfinish\n")
    (root / "tests").mkdir()
    (root / second_look.EXCUSED).write_text(json.dumps(REASONS))
    command = [sys.executable, "-m", "pytest", "-q", "-k", chosen, *args]
    first = subprocess.run(command, cwd=root, check=False, capture_output=True)
    assert first.returncode != 0
    return second_look.main(root)


@pytest.mark.slow
def test_a_test_that_failed_once_is_excused_and_named_with_its_reason(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert looked_at(tmp_path, "once") == 0
    assert (tmp_path / "once").read_text() == "x" * (1 + second_look.TIMES)
    assert capfd.readouterr().out.splitlines()[-1] == "test_it.py::test_once[a b]: waits 1 s"


@pytest.mark.slow
def test_a_race_that_nobody_has_written_down_is_not_excused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert looked_at(tmp_path, "new") == 1
    assert (tmp_path / "new").read_text() == "x" * (1 + second_look.TIMES)
    assert "test_new: not in tests/excused.json" in capfd.readouterr().out


def test_the_list_of_excuses_only_shrinks_and_names_tests_that_there_are() -> None:
    excused = json.loads((ROOT / second_look.EXCUSED).read_text())
    assert len(excused) <= EXCUSED_MAX
    for test, reason in excused.items():
        file, _, name = test.partition("::")
        assert f"def {name.rpartition('::')[2]}(" in (ROOT / file).read_text(), test
        assert len(reason.split()) > 5, f"{test}: say why it races, and why that is not mended"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("chosen", "why"),
    [
        ("now_and_then", "failed alone, too, at time 3 of 3"),
        ("bare", "a test without servers failed"),
        ("once or bare", "a test without servers failed"),
        ("many", "4 tests failed"),
        ("stop", "did not come to its end"),
        ("once or stop", "did not come to its end"),
    ],
)
def test_what_is_not_excused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], chosen: str, why: str
) -> None:
    assert looked_at(tmp_path, chosen) == 1
    assert why in capfd.readouterr().err


def test_a_file_that_cannot_be_read_is_not_excused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "test_broken.py").write_text("import nowhere\n")
    assert looked_at(tmp_path, "once", "--continue-on-collection-errors") == 1
    assert "a file could not be read" in capfd.readouterr().err
