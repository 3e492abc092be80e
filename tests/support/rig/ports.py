"""TCP ports on loopback for servers of ours, which nobody else takes meanwhile.

They lie below those that the system hands out by itself: no connection that somebody makes can have
one. Each process holds a stretch of them until it ends, so that test runs side by side never meet; one with a
fleet holds several.
"""

from __future__ import annotations

import fcntl
import os
import socket
import tempfile
from collections import deque
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
_given: deque[int] = deque(maxlen=32)
"""Those that somebody may be about to listen on: of a stretch that is nearly full the same few are free."""
_STRETCHES_MAX = 3
"""So many are one process's at most."""
_LOCKS = Path(tempfile.gettempdir()) / f"backhaul-ports-{os.getuid()}.lock"


class NoPortError(Exception):
    """Every port that may be had is in use."""


def free_port() -> int:
    """Return a TCP port on loopback that nobody listens on just now, nor was given a short while ago.

    Raises:
        NoPortError: there is none.
    """
    # By process: a fork has no part in what its parent holds.
    for number in range(_STRETCHES_MAX):
        for port in islice(_ports(os.getpid(), number), _EACH):
            if port in _given:
                continue
            with socket.socket() as probe, suppress(OSError):
                # As servers do: what is left of connections that have ended is in nobody's way.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(("127.0.0.1", port))
                probe.listen()
                _given.append(port)
                return port
    raise NoPortError(f"all {_STRETCHES_MAX * _EACH} ports of this process are in use")


@cache
def _ports(pid: int, number: int) -> Iterator[int]:
    first = _FIRST_PORT + _stretch(pid, number) * _EACH
    return cycle(range(first, first + _EACH))


@cache
def _stretch(pid: int, number: int) -> int:
    """Return the number of this process's first stretch, of its second, and so on."""
    begin = _stretch(pid, number - 1) + 1 if number else pid
    return held_stretch(_LOCKS, begin=begin % _STRETCHES)


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
