"""TCP ports on loopback for servers of ours, which nobody else takes meanwhile.

They lie below those that the system hands out by itself: no connection that somebody makes can have
one. Each process holds a stretch of them until it ends, so that test runs side by side never meet.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from contextlib import suppress
from functools import cache
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FIRST_PORT = 20_000
_EACH = 128
_STRETCHES = 96
_LOCKS = Path(tempfile.gettempdir()) / f"backhaul-ports-{os.getuid()}.lock"


class NoPortError(Exception):
    """Every port that may be had is in use."""


def free_port() -> int:
    """Return a TCP port on loopback that nobody listens on just now, nor was given a short while ago.

    Raises:
        NoPortError: there is none.
    """
    # By process: a fork has no part in what its parent holds.
    for port in islice(_ports(os.getpid()), _EACH):
        with socket.socket() as probe, suppress(OSError):
            # As servers do: what is left of connections that have ended is in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
            probe.listen()
            return port
    raise NoPortError(f"all {_EACH} ports of this process are in use")


@cache
def _ports(pid: int) -> Iterator[int]:
    first = _FIRST_PORT + held_stretch(_LOCKS, begin=pid % _STRETCHES) * _EACH
    return cycle(range(first, first + _EACH))


def held_stretch(locks: Path, *, begin: int) -> int:
    """Return the number of a stretch that is this process's own until it ends, from `begin` on.

    Raises:
        NoPortError: others hold all of them.
    """
    # Never closed: the end of the process gives up its locks, however it ends. Each is a byte.
    descriptor = os.open(locks, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    for stretch in islice(cycle(range(_STRETCHES)), begin, begin + _STRETCHES):
        with suppress(OSError):
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, stretch)
            return stretch
    os.close(descriptor)
    raise NoPortError(f"{_STRETCHES} processes hold ports: {locks}")
