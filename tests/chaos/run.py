"""One run: a world under a schedule of faults, a quiet end, and the checker's word on it."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections import Counter
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_runtime.clock import SystemClock
from tests.chaos import faults_disk, leaks, look
from tests.chaos.checker import check
from tests.chaos.diary import Diary, Told
from tests.chaos.endings import ended_wrongly
from tests.chaos.excuses import Excused
from tests.chaos.faults import befall
from tests.chaos.faults_clone import settle_clones
from tests.chaos.faults_standby import machines_differ
from tests.chaos.kinds import CLUSTER, HISTORY, STANDBY, chosen, habits
from tests.chaos.link import NoToxiproxyError
from tests.chaos.operators import Operators
from tests.chaos.publishers import Publishers
from tests.chaos.schedule import Fault, draw, to_line
from tests.chaos.service import ask_until_kept
from tests.chaos.world import world
from tests.support.rig.parts import RigError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
    from pathlib import Path

    from tests.chaos.evidence import Found
    from tests.chaos.service import Try
    from tests.chaos.world import World

DEVICES = ("VID-001", "VID-002")
SETTLE_S = 200.0
"""Longer than the hub waits to send a command for the fifth time: 155 s after the link is up."""
_LEFT_S = 90.0
"""Longer than the server keeps the consumer of a control plane that was killed: 60 s."""
_ENOUGH_S = 120.0
"""For how much longer programs go on at the most, where a busy machine has done little of what they ask."""
_LOOK_S = 0.5
_AGAIN_S = 1.0  # from one cancellation to the next
_CALM_S = 5.0
_MANY = 20
"""Of each kind, a run that says anything has more: the slowest so far had five times as many."""
log = logging.getLogger(__name__)
Answer = TypeVar("Answer")


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run is, so that it can be run again.

    `pause_s` is the mean time between two faults, `publish_s` the longest between two batches of one
    program, `parts` what the world has besides (`kinds.py`). How processes meet is not repeated exactly: run
    a failing plan several times.
    """

    seed: int
    length_s: float
    faults: tuple[Fault, ...]
    publish_s: float = 0.3
    parts: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        seed: int,
        length_s: float,
        *,
        pause_s: float = 0.7,
        publish_s: float = 0.3,
        parts: tuple[str, ...] = (),
        only: Collection[str] = (),
    ) -> Plan:
        """Return the plan of a seed, with faults of these kinds `only` where any are named.

        Raises:
            ValueError: one of them is none, or cannot happen in a run with these parts.
        """
        kinds = chosen(habits(parts), only)
        faults = draw(seed, kinds, DEVICES, length_s=length_s, pause_s=pause_s)
        return cls(seed, length_s, tuple(faults), publish_s, parts)

    def command(self) -> str:
        """Return what to type to run it again."""
        minutes = f"{self.length_s / 60:.4g}"
        words = f"make chaos SEED={self.seed} MINUTES={minutes} FAULTS={to_line(self.faults)}"
        more = " ".join([*(f"--{part}" for part in self.parts), f"--publish {self.publish_s:g}"])
        return f"{words} CHAOS_ARGS='{more}'"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a run: what is wrong, and how much there was of everything."""

    plan: Plan
    wrong: list[str]
    counts: dict[str, int]
    kinds: dict[str, int]
    """Faults that were brought about."""
    ended: dict[str, int]
    """Programs that ended by themselves, and were started again."""
    settled_s: float
    passed_over: dict[str, int] = field(default_factory=dict)
    """Faults by kind that this machine does not allow."""
    idle: dict[str, int] = field(default_factory=dict)
    """Faults by kind that found nothing to do."""
    leaks: str = ""
    """How much was compared with a moment after the start."""

    def thin(self) -> list[str]:
        """Return what there was too little of for the run to say anything."""
        needed = dict.fromkeys(("points", "events", "config writes", "commands"), _MANY)
        needed |= {"commands done": 0}
        found = {name: self.counts.get(name, 0) for name in needed}
        few = [f"{name}: {many}" for name, many in found.items() if many <= needed[name]]
        return few if self.kinds else [*few, "no faults"]

    @property
    def failed(self) -> bool:
        """Whether something is wrong, or there was too little to know."""
        return bool(self.wrong or self.thin())

    def __str__(self) -> str:
        lines = [
            f"seed {self.plan.seed}, {self.plan.length_s:g} s: settled in {self.settled_s:.1f} s",
            "; ".join(f"{name} {count:,}" for name, count in self.counts.items()),
            "faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(self.kinds.items())),
        ]
        if self.leaks:
            lines.append(self.leaks)
        if self.passed_over:
            lines.append(f"not possible here, and passed over: {self.passed_over}")
        if self.idle:
            lines.append(f"nothing done, as who was asked was away: {self.idle}")
        if self.ended:
            lines.append(f"ended by themselves: {self.ended}")
        if self.wrong:
            lines += [f"{len(self.wrong)} VIOLATIONS", *self.wrong]
        if thin := self.thin():
            lines.append(f"too little to say anything: {', '.join(thin)}")
        if self.failed:
            lines.append("again: " + self.plan.command())
        return "\n".join(lines)


async def run(plan: Plan, directory: Path) -> Outcome:
    """Run a plan with files in a directory that exists, and return what came of it.

    A run that breaks off, as where the hub never answers again, has that as its violation.

    Raises:
        NoToxiproxyError: there is no toxiproxy server.
    """
    try:
        return await _whole(plan, directory)
    except NoToxiproxyError:
        raise
    except Exception as error:
        log.exception("the run broke off")
        return broken_off(plan, error)


def broken_off(plan: Plan, error: BaseException) -> Outcome:
    """Return the outcome of a run that an error ended."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return Outcome(plan, [f"the run broke off: {error!r}"], {}, {}, {}, 0.0)


async def _whole(plan: Plan, directory: Path) -> Outcome:
    now_ns = SystemClock().now_ns
    begin_ns = now_ns()
    diary = Diary(directory / "diary", now_ns)
    small = faults_disk.needed(plan.faults)
    parts = {"cluster": CLUSTER in plan.parts, "standby": STANDBY in plan.parts}
    async with (
        world(directory, DEVICES, small, **parts) as made,
        cancelled_at_the_end(made.revive(), faults_disk.tend(made)),
    ):
        if HISTORY in plan.parts:
            made.begin_ingest(directory)
        epochs = await _answered(lambda: look.epochs_in_time(made))
        before = await _answered(lambda: leaks.look(made, directory))
        lives = leaks.Lives(made)
        before.uses = lives.uses
        programs: list[Coroutine[None, None, None]] = []
        once_more: list[Try] = []
        for device, vehicle in made.vehicles.items():
            pace = {"pause_s": plan.publish_s}
            on_vehicle = Publishers(
                device, vehicle.rig.url, plan.seed, diary, now_ns, vehicle.wall.clock, **pace
            )
            at_hub = Operators(device, made.hub, plan.seed, diary, **pace)
            programs += [*on_vehicle.programs(), *at_hub.programs()]
            once_more += [*on_vehicle.go_on(), *at_hub.go_on()]
        async with cancelled_at_the_end(*programs, lives.follow()):
            end = asyncio.create_task(asyncio.sleep(plan.length_s))
            await befall(made, list(plan.faults))
            await end
            await _enough(directory / "diary")
        healed_ns = now_ns()
        await ask_until_kept(once_more)
        diary.close()
        healed_s = asyncio.get_running_loop().time()
        told = Told.read(directory / "diary")
        sent = told.commands("kept") | told.commands("unknown")
        looking = look.Look(made, begin_ns, healed_ns, epochs, sent)
        await settle_clones(made, looking)
        found, wrong = await _settled(looking, told)
        settled_s = asyncio.get_running_loop().time() - healed_s
        # What never comes to rest would look like a leak.
        after = None if wrong else await _in_the_end(made, directory, before)
        if after is not None:
            # That may have taken a minute more, in which what was well may go wrong.
            found, wrong = await _settled(looking, told)
        besides = await made.ingest.stop() if made.ingest else []
        besides += await machines_differ(made.machines) if made.machines else []
    grown = "leaks: not looked for"
    if after is not None:
        wrong += leaks.leaked(before, after)
        grown = leaks.counts(before, after)
    kinds = Counter(fault.kind for fault in plan.faults) - made.passed_over - made.idle
    wrong += besides + ended_wrongly(made.last_words, hub_was_full=kinds["full-hub"] > 0)
    return Outcome(
        plan, wrong, _counts(told, found), kinds, dict(made.ended), settled_s,
        dict(made.passed_over), dict(+made.idle), grown,
    )  # fmt: skip


async def _answered(ask: Callable[[], Awaitable[Answer]]) -> Answer:
    """Ask until servers answer: on a busy machine they may stand still, or lead no stream for a while."""
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + _LEFT_S
    while True:
        try:
            return await ask()
        except (NatsError, OSError):
            if clock.time() > deadline_s:
                raise
        await asyncio.sleep(_LOOK_S)


async def _enough(diary: Path) -> None:
    """Wait until there is so much of everything that the run says something, or for the deadline."""
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + _ENOUGH_S
    while clock.time() < deadline_s:
        kept = _kept(await asyncio.to_thread(Told.read, diary))
        if all(len(each) > _MANY for each in kept.values()):
            return
        await asyncio.sleep(_LOOK_S)


async def _in_the_end(made: World, directory: Path, before: leaks.Held) -> leaks.Held:
    """Return what is held once no leak is seen, or at the deadline."""
    clock = asyncio.get_running_loop()
    deadline_s = clock.time() + _LEFT_S
    while True:
        try:
            after = await leaks.look(made, directory)
            if clock.time() > deadline_s or not leaks.leaked(before, after):
                return after
        except (NatsError, OSError):
            if clock.time() > deadline_s:
                raise
        await asyncio.sleep(_LOOK_S)


async def _settled(looking: look.Look, told: Told) -> tuple[Found, list[str]]:
    """Return what is found and what is wrong once nothing has been for a while, or at the deadline.

    That counts from the first look, which takes a minute or two after an hour of faults.
    """
    clock = asyncio.get_running_loop()
    calm = Calm()
    looked = False
    deadline_s = clock.time() + SETTLE_S
    while True:
        try:
            found = await looking.take(SystemClock().now_ns())
        except (NatsError, OSError, RigError, HubError, sqlite3.Error):
            if clock.time() > deadline_s:
                raise
        else:
            if not looked:
                looked, deadline_s = True, clock.time() + SETTLE_S
            wrong = check(told, found)
            log.info("%.1f s before all should be well: %s", deadline_s - clock.time(), wrong)
            if calm.lasts(clock.time(), good=not wrong) or (wrong and clock.time() > deadline_s):
                return found, wrong
        await asyncio.sleep(_LOOK_S)


class Calm:
    """Whether all has been well for a while: what is on its way may be seen nowhere for a moment."""

    def __init__(self) -> None:
        self._since_s: float | None = None

    def lasts(self, now_s: float, *, good: bool) -> bool:
        """Take in one look; return whether it and one at least 5 s ago, and all between, were good."""
        if not good:
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        return self._since_s is not None and now_s - self._since_s >= _CALM_S


@asynccontextmanager
async def cancelled_at_the_end(*programs: Coroutine[None, None, None]) -> AsyncIterator[None]:
    """Run programs meanwhile; one that ends by an error of its own fails the run."""
    ending = False

    async def beside(program: Coroutine[None, None, None]) -> None:
        try:
            await program
        except (NatsError, OSError):
            # In the end a connection that was reset cannot be closed, and need not be.
            if not ending:
                raise

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(beside(program)) for program in programs]
        try:
            yield
        finally:
            ending = True
            await _cancelled(running)


async def _cancelled(running: Sequence[asyncio.Task[None]]) -> None:
    while any(not task.done() for task in running):
        for task in running:
            # More than once: nats-py may lose a cancellation that comes together with an answer.
            task.cancel()
        await asyncio.wait(running, timeout=_AGAIN_S)


def _kept(told: Told) -> dict[str, Collection[object]]:
    """Return what was acknowledged: of each kind of which a run needs many."""
    return {
        "points": told.readings("kept"),
        "events": told.happenings("kept"),
        "config writes": told.writes("kept"),
        "commands": told.commands("kept"),
    }


def _counts(told: Told, found: Found) -> dict[str, int]:
    unknown = told.readings("unknown")
    missing = told.readings("kept") - found.up.readings.keys()
    excused = Excused.of(told, found).readings
    # The checker says whether so much is named; a vehicle that has named nothing has lost it.
    named = {*found.up.evicted, *(damage.device for damage in found.damages)}
    given_up = {reading for reading in missing - excused if reading.device in named}
    return {name: len(each) for name, each in _kept(told).items()} | {
        "points without answer": len(unknown),
        "of them arrived": len(unknown & found.up.readings.keys()),
        "points refused": len(told.readings("refused")),
        "messages": len(found.up.bodies),
        "repeats": found.up.repeats.total(),
        **{f"copies by {kind}": many for kind, many in sorted(found.copies.items())},
        "lost": len(missing - excused - given_up),
        "given up by name": len(given_up),
        "gone with a damaged ledger": len(missing & excused),
        "doubled": len(found.up.twice()),
        "vehicles of which two machines wrote in one place": len(found.forked()),
        "hours complete": sum(map(len, found.complete_hours.values())),
        "commands done": sum(each["state"] == "done" for each in found.commands.values()),
    }
