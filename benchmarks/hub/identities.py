"""A fleet's identities: what one costs, and what revoking one of them does, to it and to the others.

All against a real hub's server: real keys and JWTs, links of the leaf protocol that do nothing but stay.
Not covered: what vehicles' own work costs; the control plane, which is not needed for any of this.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from pathlib import Path

from nats.aio.client import Client

from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.access.revocations import Revocation, in_force, revoke
from backhaul_hub.access.rules import account_jwts
from backhaul_hub.nats.nkey import new_key
from backhaul_runtime.clock import SystemClock
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.fleet_identities import Fleet

REVOKED_MANY = 10_000
# What one message to the server may carry, unless hub.conf says otherwise, which it does: 4 MB.
JWT_BYTES_MAX = 1e6


def run(*, quick: bool) -> dict[str, object]:
    """Enrol, connect, revoke."""
    count, links = (200, 40) if quick else (1000, 200)
    with scratch.directory("identities") as directory:
        figures = asyncio.run(_measure(directory, count, links))
    return report(f"identities: {count} enrolled, {links} of them connected", figures)


async def _measure(directory: Path, count: int, links: int) -> list[Figure]:
    async with Fleet.running(directory) as fleet:
        names = [f"VID-{number:04}" for number in range(count)]
        for name in names:
            await fleet.enrol(name)
        figures = _signing(fleet)
        loop = asyncio.get_running_loop()
        start_s = loop.time()
        _require(await fleet.connect(*names[:links]), [], "refused")
        figures.append(
            Figure("logins a second, of 20 at once", links / (loop.time() - start_s), "/s")
        )
        async with fleet.rig.connection("system") as system:
            bad, later = names[links // 2], names[links // 2 + 1]
            cut_s = await fleet.revoke(bad, system)
            _require(await fleet.cut_off(), [bad], "cut")
            figures.append(
                Figure("revoked: cut after", 1e3 * cut_s, "ms", at_most(1000), "it and no other")
            )
        await fleet.restart()
        _require(await fleet.connect(*names[:links]), [bad], "refused after a restart")
        async with fleet.rig.connection("system") as system:
            await fleet.enrol("VID-NEW", nodes=("battery",))
            pushed = await fleet.keeper.push(system)
            if "FLEET" not in pushed:
                raise BenchmarkError(f"the accounts changed and were not pushed: {pushed}")
            _require(await fleet.connect(bad), [bad], "refused after a later account update")
            _require(await fleet.cut_off(), [bad], "cut by an update")
            figures.append(
                Figure(
                    "refused after a restart and after a later update",
                    1,
                    "of 1",
                    note="and no other",
                )
            )
            figures += await _many(fleet, system, later)
        return figures


def _signing(fleet: Fleet) -> list[Figure]:
    times_s, sizes = [], []
    now_s = SystemClock().now_ns() // 1_000_000_000
    for device in fleet.devices.values():
        start_s = time.perf_counter()
        jwt = vehicle_jwt(fleet.keys, device, now_s=now_s)
        times_s.append(time.perf_counter() - start_s)
        sizes.append(len(jwt))
    return [
        Figure("sign one: median", 1e3 * statistics.median(times_s), "ms"),
        Figure("sign one: slowest", 1e3 * max(times_s), "ms"),
        Figure("a vehicle's JWT", statistics.fmean(sizes), "bytes"),
    ]


async def _many(fleet: Fleet, system: Client, connected: str) -> list[Figure]:
    """Measure account FLEET with many revocations, and with those dropped that have expired."""
    now_ns = SystemClock().now_ns()
    now_s = now_ns // 1_000_000_000
    rows = [
        # Of half of them the JWT would have expired by now, without any revocation.
        Revocation(new_key("user").public, "FLEET", "VID", now_ns, now_s - 1 if number % 2 else 0)
        for number in range(REVOKED_MANY)
    ]
    everything = in_force(rows, now_s - 10)
    start_s = time.perf_counter()
    jwt = account_jwts(fleet.keys, (), everything, now_s=now_s)["FLEET"]
    signed_s = time.perf_counter() - start_s
    left = account_jwts(fleet.keys, (), in_force(rows, now_s), now_s=now_s)["FLEET"]
    await fleet.registry.write([revoke(row) for row in rows if not row.expires_s])
    start_s = time.perf_counter()
    await fleet.keeper.push(system)
    pushed_s = time.perf_counter() - start_s
    if not await fleet.links[connected].flush():
        raise BenchmarkError(f"{connected} was cut")
    return [
        Figure(
            f"{REVOKED_MANY:,} revocations: FLEET's JWT", len(jwt), "bytes", at_most(JWT_BYTES_MAX)
        ),
        Figure("the same, half of them expired", len(left), "bytes"),
        Figure("to build the former", 1e3 * signed_s, "ms"),
        Figure("to push the latter", 1e3 * pushed_s, "ms", note="no link is cut by it"),
    ]


def _require(found: list[str], expected: list[str], what: str) -> None:
    if found != expected:
        raise BenchmarkError(f"{what}: {found}, and should be {expected}")
