"""What a run may have left behind: descriptors, memory, streams, consumers and files, then and now.

`leaked` compares two looks and is pure; `look` and `Lives` are the thin part that reads /proc, servers
and directories.

A process is compared with what it was itself once it had lived for a while; one that a fault ended is
followed no longer, and the one that took its place is.
"""

from __future__ import annotations

import asyncio
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tests.support.rig.cluster import NAMES
from tests.support.rig.parts import RigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nats.js import JetStreamContext

    from tests.chaos.world import World
    from tests.support.rig.parts import Part

YOUNG_S = 5.0
"""For how long a process is not looked at: what it opens then it keeps."""
DESCRIPTORS_MORE = 24
"""What a process may hold more in the end: connections of whoever looks, blocks of streams."""
MEMORY_FACTOR, MEMORY_MORE_BYTES = 1.5, 96 << 20
"""It may be so many times as large, and so much larger than that: what it stores meanwhile, and caches."""
CLUSTER_MORE_BYTES = 256 << 20
"""A server of three may: in a run of 90 s one that copied its streams to the others held 135 MiB more at the end."""
CONSUMERS_MORE = 2
"""Of a stream: those of whoever is looking right now."""
_LOOK_S = 1.0
_PROC = Path("/proc")
_MIB = 1 << 20
_OF_THREE = {f"hub server {name}" for name in NAMES}
# The logins of a term go with it, and the next has others. A machine writes its revocations at its first takeover.
_STORED = re.compile(
    r"(^|/)(jetstream|backhaul-leaf|history|creds/leader|standby-copies)/|/(ledger|hub)\.db[^/]*$"
    r"|(^|/)hub-b/keys/revocations\.jsonl$"
)
_SHOWN = 5


class Process(NamedTuple):
    """One process, by its id and the moment of its start: an id alone may be given again."""

    name: str
    pid: int
    started: int


class Use(NamedTuple):
    """What a process holds."""

    descriptors: int
    memory_bytes: int
    at_s: float = 0.0
    """When it was looked at, by the loop's clock."""


@dataclass(slots=True)
class Held:
    """All that there is at one moment."""

    uses: dict[Process, Use] = field(default_factory=dict)
    consumers: dict[str, int] = field(default_factory=dict)
    """How many a stream has, by the server's and its name."""
    files: set[str] = field(default_factory=set)
    """In the directory of the run, but for what stores are made of."""


def leaked(before: Held, after: Held) -> list[str]:
    """Return what is there in the end and should not be; nothing where nothing is."""
    wrong: list[str] = []
    for process, was, now in _lived(before, after):
        if now.descriptors > was.descriptors + DESCRIPTORS_MORE:
            wrong.append(f"{process.name}: {now.descriptors} descriptors, {was.descriptors} before")
        more = CLUSTER_MORE_BYTES if process.name in _OF_THREE else MEMORY_MORE_BYTES
        if now.memory_bytes > was.memory_bytes * MEMORY_FACTOR + more:
            sizes = f"{now.memory_bytes // _MIB} MiB, {was.memory_bytes // _MIB} before"
            wrong.append(f"{process.name}: {sizes}")
    for stream, many in sorted(after.consumers.items()):
        if stream not in before.consumers:
            wrong.append(f"{stream}: a stream that was not there before")
        elif many > before.consumers[stream] + CONSUMERS_MORE:
            wrong.append(f"{stream}: {many} consumers, {before.consumers[stream]} before")
    if files := sorted(after.files - before.files):
        wrong.append(f"{len(files)} files that were not there before: {', '.join(files[:_SHOWN])}")
    return [f"leaked: {each}" for each in wrong]


def counts(before: Held, after: Held) -> str:
    """Say in one line how much was compared, over what time, and by how much the worst has grown."""
    lived = list(_lived(before, after))
    spans_s = [now.at_s - was.at_s for _, was, now in lived]
    descriptors = max((now.descriptors - was.descriptors for _, was, now in lived), default=0)
    grown = [(now.memory_bytes - was.memory_bytes, process.name) for process, was, now in lived]
    memory, largest = max(grown, default=(0, "none"))
    total = sum(after.consumers.values()) - sum(before.consumers.values())
    return (
        f"leaks: {len(lived)} processes lived through, for {min(spans_s, default=0.0):,.0f} to "
        f"{max(spans_s, default=0.0):,.0f} s, at most {descriptors:+} descriptors and "
        f"{memory / _MIB:+.0f} MiB ({largest}); {len(after.consumers)} streams, {total:+} consumers; "
        f"{len(after.files)} files, {len(after.files - before.files):+}"
    )


def _lived(before: Held, after: Held) -> Iterator[tuple[Process, Use, Use]]:
    for process in sorted(before.uses.keys() & after.uses.keys()):
        yield process, before.uses[process], after.uses[process]


class Lives:
    """Follows the processes of a world, each from when it is no longer young."""

    def __init__(self, world: World) -> None:
        self.uses: dict[Process, Use] = {}
        self._world = world
        self._seen_s: dict[Process, float] = {}

    async def follow(self) -> None:
        """Look at all of them again and again, until cancelled."""
        while True:
            now_s = asyncio.get_running_loop().time()
            for process in processes(self._world.parts()):
                born_s = self._seen_s.setdefault(process, now_s)
                if process not in self.uses and now_s - born_s >= YOUNG_S:
                    self.uses |= uses([process], now_s)
            await asyncio.sleep(_LOOK_S)


def processes(parts: Iterable[Part]) -> list[Process]:
    """Return what runs now."""
    found: list[Process] = []
    for part in parts:
        try:
            found.append(Process(part.name, part.pid, _started(part.pid)))
        except (RigError, OSError):
            continue
    return found


def uses(them: Iterable[Process], at_s: float = 0.0) -> dict[Process, Use]:
    """Return what processes hold now, which is `at_s`; those that are gone are left out."""
    found: dict[Process, Use] = {}
    for process in them:
        try:
            descriptors = sum(1 for _ in (_PROC / str(process.pid) / "fd").iterdir())
            pages = int(_read(process.pid, "statm").split()[1])
        except OSError:
            continue
        size = pages * os.sysconf("SC_PAGE_SIZE")
        found[process] = Use(descriptors, size, at_s)
    return found


def files(directory: Path) -> set[str]:
    """Return the files of a run, but for what stores are made of: those come and go."""
    found = (str(path.relative_to(directory)) for path in directory.rglob("*") if path.is_file())
    return {name for name in found if not _STORED.search(name)}


async def look(world: World, directory: Path, lived: Mapping[Process, Use] | None = None) -> Held:
    """Return what there is now; `lived`: what processes held when they were looked at before.

    Raises:
        NatsError, OSError: a server does not answer.
    """
    now_s = asyncio.get_running_loop().time()
    held = Held(dict(lived if lived is not None else uses(processes(world.parts()), now_s)))
    async with world.hub.connection() as hub:
        held.consumers |= await _consumers("hub", hub.jetstream())
        held.consumers |= await _consumers("hub", hub.jetstream(prefix="upapi"))
    for device, vehicle in world.vehicles.items():
        async with vehicle.rig.connection() as leaf:
            held.consumers |= await _consumers(device, leaf.jetstream())
    held.files = await asyncio.to_thread(files, directory)
    return held


async def _consumers(server: str, jetstream: JetStreamContext) -> dict[str, int]:
    infos = await jetstream.streams_info()
    return {f"{server} {info.config.name}": info.state.consumer_count for info in infos}


def _started(pid: int) -> int:
    """Return when a process was started, in the kernel's ticks: the 22nd field, the name being the 2nd."""
    return int(_read(pid, "stat").rpartition(")")[2].split()[19])


def _read(pid: int, what: str) -> str:
    return (_PROC / str(pid) / what).read_text()
