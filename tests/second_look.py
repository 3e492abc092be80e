"""Look again, in CI, at the few tests with real servers that failed beside all others: `python -m tests.second_look`.

On two cores that are not ours alone a test may wait for too little, and one in thousands would hide the words of
the others. A test is excused if it passes alone, three times running, and stands in `excused.json`
with the reason: it is a race, of the test or of the product, that somebody has read. That list only shrinks
(`tests/test_second_look.py`), so a new race is mended. Not excused: a test without servers, more than three, and
a run that did not come to its end.
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
EXCUSED = Path("tests/excused.json")
"""By test, without parameters: the race, and the reason why it is not mended yet."""
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
    reasons = json.loads((root / EXCUSED).read_text())
    print(f"second look: failed beside others, passed alone {TIMES} times. Each is a race:")
    for test in failed:
        print(
            f"{test}: {reasons.get(test.partition('[')[0], f'not in {EXCUSED}, so to be mended')}"
        )
    return int(any(test.partition("[")[0] not in reasons for test in failed))


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
