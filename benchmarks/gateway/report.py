"""Which sites there are, what each goes through, and the table of it all."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, NamedTuple

from benchmarks import scratch
from benchmarks.figures import report
from benchmarks.gateway.fleet import idle_vehicles
from benchmarks.gateway.known import OURS, PATIENT
from benchmarks.gateway.mqtt import broker_program, sparkplug_site
from benchmarks.gateway.options import CHOSEN, ROWS
from benchmarks.gateway.ours import our_site
from benchmarks.gateway.plain import Per, plain_site
from benchmarks.gateway.site import DEVICE, SETTLE_S, Site
from benchmarks.gateway.steps import (
    AT_1_HZ,
    POINTS_PER_S,
    SPARSE,
    SPREAD,
    Row,
    Step,
    alone,
    at_rest,
    cuts,
    first_work,
    row_of,
    work,
)
from demo.simulate import Vehicle
from tests.support.gateway_floor import self_contained
from tests.support.gateway_work import VALUES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.support.gateway_work import Work

_PATIENT = "[frame]\nage_s_max = 10.0\n"
_FLEET = 100_000
_SET_UP_AT_ONCE = 4
_LINKS_S = {"loopback": 0.0, "100 ms": 0.1}
_FLOOR_TURNS = 300
_WIDTH_COLUMNS = 150


class Load(NamedTuple):
    """How long and how often each row is measured."""

    work_s: float
    sparse_s: float
    idle_s: float
    readings: int
    outages: int
    others_outages: int
    vehicles: int
    fleet_s: float
    warm_s: float
    """Of rows b to e, for all systems alike: our vehicle learns a dictionary in it."""


_QUICK = Load(20.0, 40.0, 90.0, 5, 5, 1, 8, 60.0, 20.0)
_FULL = Load(60.0, 120.0, 360.0, 20, 20, 5, 30, 300.0, 90.0)


class Plan(NamedTuple):
    """A site and its steps. With `apart` it is measured after the others, unless in a hurry."""

    link: str
    open: Callable[[Path], AbstractAsyncContextManager[Site]]
    steps: list[Step]
    apart: bool = False


def measure(*, quick: bool) -> dict[str, object]:
    """Measure the chosen rows, print the table, and return it.

    Raises:
        ExceptionGroup: some site broke or lost data; the table of the others is printed before.
    """
    chosen = CHOSEN.get()
    load = _QUICK if quick else _FULL
    outages = chosen.outages or load.outages
    load = load._replace(
        outages=outages,
        others_outages=min(outages, load.others_outages),
        vehicles=chosen.vehicles or load.vehicles,
    )
    if broker_program() is None:
        print("gateway: mosquitto is not installed, nats-server is the MQTT broker")
    began_s = time.perf_counter()
    with scratch.directory("gateway") as directory:
        rows, errors = asyncio.run(_all(directory, load, chosen.rows, together=quick))
    rows += _floor(chosen.rows)
    # Rows in their order, ours first; within a system as they were measured.
    rows.sort(key=lambda row: (row.row, not row.figure.name[3:].startswith(OURS)))
    seconds = time.perf_counter() - began_s
    measured = report(
        f"gateway: bytes are TCP payload in both directions; {seconds:.0f} s",
        [row.figure for row in rows if row.row in chosen.rows],
        width_columns=_WIDTH_COLUMNS,
        rows={row: ROWS[row] for row in sorted(chosen.rows)},
    )
    for row in sorted(chosen.rows):
        print(f"  {row}  {ROWS[row]}")
    if errors:
        raise ExceptionGroup("gateway", errors)
    return measured


async def _all(
    directory: Path, load: Load, rows: frozenset[str], *, together: bool
) -> tuple[list[Row], list[Exception]]:
    found: list[Row] = []
    errors: list[Exception] = []
    plans = [
        (plan, partial(_through, plan, directory / f"site{number:02d}", rows))
        for number, plan in enumerate(_plans(directory, load))
        if any(_wanted(step, rows) for step in plan.steps)
    ]
    at_work = [job for plan, job in plans if not plan.apart]
    apart = [job for plan, job in plans if plan.apart]
    fleet = [partial(_fleet, directory / "fleet", load)] if "i" in rows else []
    for phase in [[*fleet, *apart, *at_work]] if together else [at_work, apart, fleet]:
        start = _Start(len(phase))
        jobs = [job(start) for job in phase]
        for result in await asyncio.gather(*jobs, return_exceptions=True):
            if isinstance(result, list):
                found += result
            elif isinstance(result, Exception):
                errors.append(result)
            else:
                raise result
    return found, errors


class _Start:
    """Has sites set up a few at a time, and begin when all are: a set-up takes both cores.

    A leaf that finds its hub slow to answer, as on a long way, has the link compressed.
    """

    def __init__(self, sites: int) -> None:
        self._left = sites
        self._began_s = time.perf_counter()
        self._few = asyncio.Semaphore(_SET_UP_AT_ONCE)
        self._all = asyncio.Event()

    @asynccontextmanager
    async def setting_up(self) -> AsyncIterator[None]:
        """Wait for a place; when it is given back, the site is set up, or has failed."""
        try:
            async with self._few:
                yield
        finally:
            self._left -= 1
            if not self._left:
                print(f"  all set up {time.perf_counter() - self._began_s:.0f} s after the start")
                self._all.set()

    async def all_set_up(self) -> None:
        """Wait for the others."""
        await self._all.wait()


async def _through(plan: Plan, directory: Path, rows: frozenset[str], start: _Start) -> list[Row]:
    directory.mkdir()
    found: list[Row] = []
    async with AsyncExitStack() as stack:
        async with start.setting_up():
            site = await stack.enter_async_context(plan.open(directory))
        await start.all_set_up()
        await asyncio.sleep(SETTLE_S)
        for step in plan.steps:
            if _wanted(step, rows):
                found += await step.run(site, plan.link)
    return found


def _wanted(step: Step, rows: frozenset[str]) -> bool:
    return not rows.isdisjoint(step.rows)


async def _fleet(directory: Path, load: Load, start: _Start) -> list[Row]:
    directory.mkdir()
    async with AsyncExitStack() as stack:
        async with start.setting_up():
            vehicles = await stack.enter_async_context(idle_vehicles(directory, load.vehicles))
        await start.all_set_up()
        await asyncio.sleep(2 * SETTLE_S)
        fleet = await vehicles.idle(load.fleet_s)
    each = fleet.bytes_s / fleet.vehicles
    note = f"from {fleet.vehicles} real leafs, {each:,.0f} B/s each, 100 ms"
    return [row_of("i", OURS, fleet.mbit_s(_FLEET), "Mbit/s", link="100,000", note=note)]


def _plans(directory: Path, load: Load) -> list[Plan]:
    return [*_our_plans(directory, load), *_plain_plans(load), *_sparkplug_plans(load)]


def _our_plans(directory: Path, load: Load) -> list[Plan]:
    ours = {link: partial(our_site, round_trip_s=seconds) for link, seconds in _LINKS_S.items()}
    patient = {link: partial(each, settings=_PATIENT) for link, each in ours.items()}
    slow = max(30.0, load.work_s)
    return [
        Plan(
            "loopback",
            ours["loopback"],
            [
                first_work(load.work_s, 0, directory / "points"),
                work("d", SPREAD, load.work_s, warm_s=load.warm_s),
                work("c", SPARSE, load.sparse_s, beat_s=10.0, warm_s=load.warm_s),
                work("e", POINTS_PER_S, load.work_s, warm_s=load.warm_s),
            ],
        ),
        Plan(
            "100 ms",
            partial(ours["100 ms"], watched=True),
            [first_work(load.work_s, 5), alone(load.readings)],
        ),
        Plan(
            "loopback",
            patient["loopback"],
            [
                work("b", AT_1_HZ, slow, beat_s=10.0, warm_s=load.warm_s),
                work("e", POINTS_PER_S, slow, beat_s=10.0, part=PATIENT, warm_s=load.warm_s),
            ],
        ),
        Plan(
            "100 ms", patient["100 ms"], [work("b", AT_1_HZ, slow, beat_s=10.0, warm_s=load.warm_s)]
        ),
        Plan("loopback", ours["loopback"], [at_rest(load.idle_s, 0)]),
        Plan("100 ms", ours["100 ms"], [at_rest(load.idle_s, 3)]),
        Plan("loopback", ours["loopback"], [cuts(load.outages)], apart=True),
    ]


def _plain_plans(load: Load) -> list[Plan]:
    sites = {
        (per, link): partial(plain_site, per=per, round_trip_s=seconds)
        for per in Per
        for link, seconds in _LINKS_S.items()
    }
    at_1_hz = work("a", AT_1_HZ, load.work_s)
    sparse = work("c", SPARSE, load.sparse_s, beat_s=10.0, warm_s=load.warm_s)
    fast = work("e", POINTS_PER_S, load.work_s, warm_s=load.warm_s)
    spread = work("d", SPREAD, load.work_s, warm_s=load.warm_s)
    steps = {
        (Per.POINT, "loopback"): [at_1_hz, sparse, fast],
        (Per.POINT, "100 ms"): [at_1_hz],
        (Per.NODE, "loopback"): [at_1_hz, spread, sparse],
        (Per.NODE, "100 ms"): [at_1_hz],
        (Per.SECOND, "loopback"): [at_1_hz, sparse, at_rest(load.idle_s, 0)],
        (Per.SECOND, "100 ms"): [at_1_hz],
    }
    outages = Plan(
        "loopback", sites[Per.SECOND, "loopback"], [cuts(load.others_outages)], apart=True
    )
    return [*(Plan(key[1], sites[key], found) for key, found in steps.items()), outages]


def _sparkplug_plans(load: Load) -> list[Plan]:
    sites = {
        link: partial(sparkplug_site, names=_names(AT_1_HZ), round_trip_s=seconds)
        for link, seconds in _LINKS_S.items()
    }
    return [
        Plan(
            "loopback",
            sites["loopback"],
            [
                work("a", AT_1_HZ, load.work_s),
                work("d", SPREAD, load.work_s, warm_s=load.warm_s),
                work("c", SPARSE, load.sparse_s, beat_s=10.0, warm_s=load.warm_s),
                work("e", POINTS_PER_S, load.work_s, warm_s=load.warm_s),
            ],
        ),
        Plan("100 ms", sites["100 ms"], [first_work(load.work_s, 5), alone(load.readings)]),
        Plan("100 ms", sites["100 ms"], [at_rest(load.idle_s, 3)]),
        Plan("loopback", sites["loopback"], [cuts(load.others_outages)], apart=True),
    ]


def _names(gateway: Work) -> list[tuple[str, str, str]]:
    """Return the series of a gateway and of the van."""
    found = [(node, type_, "") for node in gateway.names for type_ in VALUES[: gateway.values]]
    van = Vehicle(DEVICE, seed=1).sample(0, 1.0)
    return found + [
        (point.node, point.type, point.key) for points in van.values() for point in points
    ]


def _floor(rows: frozenset[str]) -> list[Row]:
    works: Sequence[tuple[str, Work, int]] = (
        ("a", AT_1_HZ, 1),
        ("b", AT_1_HZ, 10),
        ("c", SPARSE, 1),
    )
    found = []
    for row, gateway, turns in works:
        if row in rows:
            readings = gateway.readings(Random(1))
            sizes = [
                len(self_contained(0, [each.values for each in islice(readings, turns)]))
                for _ in range(_FLOOR_TURNS)
            ]
            points = _FLOOR_TURNS * turns * gateway.points_a_turn
            note = "bodies alone"
            found.append(row_of(row, "floor", sum(sizes) / points, "B/point", note=note))
    return found
