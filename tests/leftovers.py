"""Have what a file with servers forgot to close found before the next file, whose tests it would fail.

A socket that a library forgot, now and then and under load, warns when garbage is collected, which may be
in the middle of any test that comes later; and a warning is an error there. So garbage is collected between
files, and what was found is a warning that names the file. Within the file it stays an error.
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
    stash = request.config.stash
    if before := stash.get(_before, ""):
        _collect(before)
    servers = _SERVERS.search(request.path.read_text())
    stash[_before] = request.node.nodeid if servers else ""


def _collect(before: str) -> None:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("always", ResourceWarning)
        for each in found:
            warnings.warn(f"left by {before}: {each.message}", ResourceWarning, stacklevel=1)
