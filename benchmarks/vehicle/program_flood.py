"""What other programs on a vehicle notice of one that floods its agent: how long their requests take.

Leaf server, agent, and both programs real, on one machine. First with nothing else going on; then beside
one program at a time that sends all that it can (tests/support/rude_program.py). Each request of the honest one must be
answered; `busy` is asked again, and the time goes on. At the end all that was answered "kept" must be in OUT.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from nats.aio.client import Client

from backhaul_agent.leaf.login import login_options
from benchmarks import scratch
from benchmarks.errors import BenchmarkError
from benchmarks.figures import Figure, at_most, report
from tests.support.agent_streams import points_of
from tests.support.rig.parts import Part, program, run_to_end
from tests.support.rig.patient import PATIENCE_S, connect
from tests.support.rig.vehicle import VehicleRig, vehicle
from tests.support.rude_program import KINDS

ANSWER_S_MAX = 5.0
_PAUSE_S = 0.1
_GIVE_UP_S = 60.0
FLOODS = (
    ("small", "app.rude.x"),
    ("small-asking", "app.rude.x"),
    ("large", "app.rude.x"),
    ("large-asking", "app.rude.x"),
    ("small-asking", "agent.get.rude"),
    ("small-asking", "agent.status"),
)


def run(*, quick: bool) -> dict[str, object]:
    """Measure the quiet value, then each kind of flood beside it."""
    with scratch.directory("program_flood") as directory:
        figures = asyncio.run(_measure(directory, seconds=10 if quick else 60))
    return report(
        "program_flood: a program's requests to the agent, beside another program that floods it",
        figures,
        note="aims: 5 s for a request, no connection of the agent's lost, nothing kept that is not there",
    )


async def _measure(directory: Path, *, seconds: float) -> list[Figure]:
    async with vehicle(directory, linked=False) as rig:
        for name in ("honest", "rude"):
            rights = ("--publish", name, "--read", name)
            own = ("--dir", str(rig.device.agent_toml.parent))
            await run_to_end([program("backhaul-agent"), "app", "add", name, *rights, *own])
        async with _login(rig, "agent.nk") as agent, _login(rig, "apps/honest.nk") as client:
            connects = (await rig.status(agent))["connects"]
            honest = Honest(client)
            quiet = await honest.ask_for(5.0)
            figures = [
                Figure("quiet: a publish, slowest", 1e3 * max(quiet.publish_s), "ms"),
                Figure("quiet: a question, slowest", 1e3 * max(quiet.ask_s), "ms"),
            ]
            for number, (kind, subject) in enumerate(FLOODS):
                rude = _rude(rig, directory / f"rude-{number}.log", kind, subject)
                await rude.start()
                found = await honest.ask_for(seconds)
                await rude.stop()
                figures += _figures(f"{kind} {subject}", found, rude, seconds)
            status = await rig.appended(agent)
            lost = honest.kept - await _in_out(agent)
            return [
                *figures,
                Figure("connections lost", status["connects"] - connects, "", at_most(0)),
                Figure("kept and not in OUT", lost, "points", at_most(0)),
            ]


def _figures(name: str, found: Found, rude: Part, seconds: float) -> list[Figure]:
    sent = json.loads(rude.logged().decode().splitlines()[-1])["sent"]
    publish_s, ask_s = sorted(found.publish_s), sorted(found.ask_s)
    return [
        Figure(f"{name}: flood", sent / seconds, "/s"),
        Figure(f"{name}: a publish, half", 1e3 * publish_s[len(publish_s) // 2], "ms"),
        Figure(
            f"{name}: a publish, slowest", 1e3 * publish_s[-1], "ms", at_most(1e3 * ANSWER_S_MAX)
        ),
        Figure(f"{name}: a question, slowest", 1e3 * ask_s[-1], "ms", at_most(1e3 * ANSWER_S_MAX)),
        Figure(f"{name}: answered busy", found.busy, ""),
    ]


@dataclass(slots=True)
class Found:
    """How long requests took until they were done."""

    publish_s: list[float] = field(default_factory=list)
    ask_s: list[float] = field(default_factory=list)
    busy: int = 0


class Honest:
    """A program that publishes and asks now and then. ``kept``: how many points were answered so."""

    def __init__(self, client: Client) -> None:
        self.kept = 0
        self._client = client

    async def ask_for(self, seconds: float) -> Found:
        """Publish and ask for so long, one after the other.

        Raises:
            BenchmarkError: a request was not answered.
        """
        found = Found()
        loop = asyncio.get_running_loop()
        end_s = loop.time() + seconds
        while loop.time() < end_s or not found.ask_s:
            found.publish_s.append(await self._done("app.honest.x", str(self.kept), found))
            self.kept += 1
            found.ask_s.append(await self._done("agent.get.honest", "{}", found))
            await asyncio.sleep(_PAUSE_S)
        return found

    async def _done(self, subject: str, payload: str, found: Found) -> float:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        try:
            while True:
                answer = await self._client.request(subject, payload.encode(), timeout=_GIVE_UP_S)
                error: dict[str, Any] = json.loads(answer.data).get("error", {})
                if not error:
                    return loop.time() - begun_s
                if error["code"] != "busy":
                    raise BenchmarkError(f"{subject} was answered {error}")
                found.busy += 1
        except TimeoutError as gone:
            raise BenchmarkError(f"{subject} was not answered in {_GIVE_UP_S:.0f} s") from gone


async def _in_out(agent: Client) -> int:
    return sum(point.node == "honest" for point in await points_of(agent, "OUT_bulk"))


@asynccontextmanager
async def _login(rig: VehicleRig, key: str) -> AsyncIterator[Client]:
    options = login_options(nkey=str(rig.device.agent_toml.parent / key))
    client = await connect(rig.device.url, **options, connect_timeout=int(PATIENCE_S))
    try:
        yield client
    finally:
        await client.close()


def _rude(rig: VehicleRig, log: Path, kind: str, subject: str) -> Part:
    assert kind in KINDS
    key = rig.device.agent_toml.parent / "apps" / "rude.nk"
    words = [sys.executable, "-m", "tests.support.rude_program", rig.device.url, str(key)]
    return Part("rude program", [*words, kind, subject], log)
