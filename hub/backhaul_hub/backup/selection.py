"""The hub's streams that a backup takes, and their order. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from backhaul_hub.errors import BackupError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.shards import is_passing, is_shard
from backhaul_hub.streams.streams import JOURNAL
from backhaul_hub.streams.twin_streams import BLOBS, COMMANDS, STATE

NOT_KEPT = {
    DOWN: "written anew from hub.db",
    STATE: "filled again from hub.db and UP, and of no use after an hour",
    COMMANDS: "no command is carried out from a backup; what became of each is in hub.db",
    BLOBS: "kept as files",
    JOURNAL: "hub.db holds all of it, and begins a new one when it is put back",
}
"""Streams that no snapshot is taken of, and why."""
_PASSING = "all of it is on its way into UP, and its vehicles have it"


@dataclass(frozen=True, slots=True)
class Choice:
    """The streams that a backup takes."""

    streams: tuple[str, ...] = ()
    """These alone; empty: all of them but `NOT_KEPT`."""
    without_up: bool = False
    """Leave the messages of UP out: after a restore the vehicles are asked for them again."""


def chosen(names: Iterable[str], choice: Choice) -> list[str]:
    """Return the streams to take, in their order: UP last. Pure.

    Raises:
        BackupError: one that was asked for is not there, or is never taken.
    """
    names = set(names)
    for name in choice.streams:
        if why := NOT_KEPT.get(name) or (_PASSING if is_passing(name) else ""):
            raise BackupError(f"no snapshot is taken of {name}: {why}")
        if name not in names:
            raise BackupError(f"there is no stream {name}", hint=f"there are {sorted(names)}")
    wanted = set(choice.streams) or {
        name
        for name in names - NOT_KEPT.keys()
        if not is_passing(name) and not (choice.without_up and is_shard(name))
    }
    return sorted(wanted, key=lambda name: (is_shard(name), name))
