"""Look again, in CI, at the few tests with real servers that failed beside all others: `python -m tests.second_look`.

On two cores that are not ours alone a test may wait for too little, and one in thousands would hide what
the others say. Excused is what passes alone, three times running, and it is named at the end: it is a
race, of the test or of the product, and to be read. Not excused: a test without servers, more than
three, and a run that did not come to its end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

TIMES = 3
TESTS_MAX = 3
SERVERS = "nats or chaos or spark"
_CACHE = Path(".pytest_cache/v")
_SOME_FAILED, _NONE_CHOSEN = 1, 5


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Note that the run came to its end: what was not run has not passed."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not hasattr(session.config, "workerinput"):
        cache.set("backhaul/exit", int(exitstatus))


def main(root: Path) -> int:
    """Return the exit status: 0 if what failed in the last run below `root` is excused."""
    failed = _failed(root)
    if why := _no_excuse(root, failed):
        print(f"second look: {why}", file=sys.stderr)
        return 1
    for time in range(1, TIMES + 1):
        if _pytest(root, "-v", *failed):
            print(f"second look: failed alone, too, at time {time} of {TIMES}", file=sys.stderr)
            return 1
    print(
        f"second look: failed beside others, passed alone {TIMES} times. Each is a race to be read:"
    )
    print("\n".join(failed))
    return 0


def _failed(root: Path) -> list[str]:
    """Return the tests that failed in a run that came to its end."""
    try:
        if json.loads((root / _CACHE / "backhaul/exit").read_text()) != _SOME_FAILED:
            return []
        return list(json.loads((root / _CACHE / "cache/lastfailed").read_text()))
    except FileNotFoundError:
        return []


def _no_excuse(root: Path, failed: list[str]) -> str:
    if not failed:
        return "the run did not come to its end"
    if len(failed) > TESTS_MAX:
        return f"{len(failed)} tests failed, which is no accident"
    if not all("::" in test for test in failed):
        return "a file could not be read"
    if _pytest(root, "--collect-only", "-q", "-m", f"not ({SERVERS})", *failed) != _NONE_CHOSEN:
        return "a test without servers failed"
    return ""


def _pytest(root: Path, *args: str) -> int:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *args]
    return subprocess.run(command, cwd=root, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path.cwd()))
