"""Have what a file with servers forgot to close found before the next file, whose tests it would fail.

A socket that a library forgot, now and then and under load, warns when garbage is collected, which may be
in the middle of any test that comes later, or at the end of the run; and a warning is an error there. So
garbage is collected between files and after the last, and what was found is a warning that names the file.
Within the file it stays an error.
"""

from __future__ import annotations

import gc
import re
import warnings

import pytest

_SERVERS = re.compile(r"pytest\.mark\.(nats|chaos|spark)")
_before = pytest.StashKey[str]()


@pytest.fixture(scope="module", autouse=True)
def _without_leftovers(request: pytest.FixtureRequest) -> None:
    """Collect here and not at a file's end: until then its last test is held, with all that it used."""
    _collect(request.config)
    servers = _SERVERS.search(request.path.read_text())
    request.config.stash[_before] = request.node.nodeid if servers else ""


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Collect after the last file, too: pytest fails a run for what it finds at its own end."""
    _collect(session.config)


def _collect(config: pytest.Config) -> None:
    if not (before := config.stash.get(_before, "")):
        return
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("always", ResourceWarning)
        for each in found:
            warnings.warn(f"left by {before}: {each.message}", ResourceWarning, stacklevel=1)
