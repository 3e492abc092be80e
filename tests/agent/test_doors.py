"""One program floods the agent with all that it can; the others are served, and it is named."""

from __future__ import annotations

import asyncio
import json
import sys
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio
from nats.errors import Error as NatsError

from backhaul_agent.apps import doors as doors_module
from backhaul_agent.apps.doors import Doors, Heard, program_of
from backhaul_agent.apps.rights import DOORS, door_subject
from tests.agent.app_vehicle import Vehicle
from tests.support.agent_streams import points_of
from tests.support.rig import patient
from tests.support.rig.parts import Part
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from tests.support.nats_server import NatsServer

pytestmark = [pytest.mark.nats]
ANSWER_S_MAX = 60.0
ROUNDS = 20


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def vehicle(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Vehicle]:
    async with AsyncExitStack() as stack:
        made = Vehicle(tmp_path_factory.mktemp("doors"), stack, free_port())
        await made.start()
        await made.run("app", "add", "honest", "--publish", "honest", "--read", "honest")
        await made.run("app", "add", "rude", "--publish", "rude", "--read", "rude", "--artifacts")
        yield made


async def status_of(client: Client) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(
        (await client.request("agent.status", b"", ANSWER_S_MAX)).data
    )
    return said


def in_out(status: dict[str, Any]) -> bool:
    """Return whether all that was kept is in OUT."""
    lane = status["lanes"]["bulk"]
    return not status["ledger"]["staged_points"] and bool(lane["appended"] == lane["last_seq"])


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(
    ("kind", "subject"),
    [
        ("small", "app.rude.x"),
        ("small-asking", "app.rude.x"),
        ("large", "app.rude.x"),
        ("small-asking", "agent.get.rude"),
        ("small-asking", "agent.status"),
        ("large-asking", "agent.artifact.list"),
    ],
)
async def test_others_are_served_while_one_program_floods(
    vehicle: Vehicle, tmp_path: Path, kind: str, subject: str
) -> None:
    own = (await vehicle.login("agent.nk")).client
    before = await status_of(own)
    key = str(vehicle.dir / "apps" / "rude.nk")
    words = [sys.executable, "-m", "tests.support.rude_program", vehicle.url, key, kind, subject]
    rude = Part("rude", words, tmp_path / "rude.log")
    honest = (await vehicle.login("apps/honest.nk")).client
    kept: list[str] = []
    series = f"{kind}-{subject.replace('.', '-')}"

    async def ask(asked: str, payload: str) -> dict[str, Any]:
        """Ask until it is done; every single time there must be an answer, busy or not."""
        while True:
            said: dict[str, Any] = json.loads(
                (await honest.request(asked, payload.encode(), timeout=ANSWER_S_MAX)).data
            )
            if said.get("error", {}).get("code") != "busy":
                return said

    async def named(status: dict[str, Any]) -> bool:
        shown = {(each["code"], each["about"]) for each in status["conditions"]}
        more = status["programs"] != before["programs"]
        return more and ("program-flooding", "rude") in shown

    await rude.start()
    try:
        async with asyncio.timeout(4 * ANSWER_S_MAX):
            while len(kept) < ROUNDS or not await named(await status_of(own)):
                assert await ask(f"app.honest.{series}", str(len(kept))) == {"kept": 1}
                kept.append(series)
                assert "points" in await ask("agent.get.honest", "{}")
                assert (await ask("agent.status", ""))["connects"] == before["connects"]
    finally:
        await rude.stop()
    async with asyncio.timeout(4 * ANSWER_S_MAX):
        while not in_out(status := await status_of(own)):
            assert status["connects"] == before["connects"]
    found = [
        point.value
        for point in await points_of(own, "OUT_bulk")
        if (point.node, point.type) == ("honest", series)
    ]
    assert found == list(map(float, range(len(kept))))


class Rig:
    """Doors on a server that lets everybody in, and what came through them."""

    def __init__(self, url: str) -> None:
        self.came: list[tuple[str, str, bytes]] = []
        self.busy: list[tuple[str, str, str]] = []
        self.cut: list[str] = []
        self.goes_on = asyncio.Event()
        self.goes_on.set()
        self._url = url
        self.doors = Doors(self._connect, lambda *said: self.busy.append(said), self.cut.append)

    async def _connect(
        self, client: Client, on_error: Callable[[Exception], Awaitable[None]]
    ) -> None:
        await client.connect(self._url, error_cb=on_error, allow_reconnect=False)

    async def note(self, message: Msg) -> None:
        await self.goes_on.wait()
        self.came.append((program_of(message), message.subject, message.data))


@pytest_asyncio.fixture
async def rig(nats_server: NatsServer) -> AsyncIterator[Rig]:
    made = Rig(nats_server.url)
    await made.doors.open()
    running = asyncio.create_task(made.doors.run())
    yield made
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await made.doors.close()


async def test_what_comes_through_a_door_has_the_programs_subject_and_name(
    rig: Rig, nats_server: NatsServer
) -> None:
    await rig.doors.hear(Heard("app.>", rig.note, {}))
    await rig.doors.flush()
    client = await patient.connect(nats_server.url)
    for door in range(DOORS):
        await client.publish(door_subject(door, "gps", "app.gps.lat"), b"%d" % door)
    await until(lambda: len(rig.came) == DOORS)
    assert sorted(rig.came) == [("gps", "app.gps.lat", b"%d" % door) for door in range(DOORS)]
    await client.close()


async def test_a_door_that_is_full_says_so_at_once_and_no_other_notices(
    rig: Rig, nats_server: NatsServer
) -> None:
    rig.goes_on.clear()
    await rig.doors.hear(Heard("app.>", rig.note, {"pending_msgs_limit": 10}))
    await rig.doors.flush()
    client = await patient.connect(nats_server.url)
    for _ in range(30):
        await client.publish(door_subject(1, "rude", "app.x.y"), b"1", reply="_INBOX.r")
    await client.publish(door_subject(2, "honest", "app.h.y"), b"2")
    await until(lambda: len(rig.busy) >= 19)  # the one that is dealt with is in no queue
    assert set(rig.busy) == {("rude", "app.x.y", "_INBOX.r")}
    rig.goes_on.set()
    await until(lambda: len(rig.came) + len(rig.busy) == 31)
    assert ("honest", "app.h.y", b"2") in rig.came
    await client.close()


async def test_a_door_that_was_cut_is_opened_again_and_its_program_is_named(
    rig: Rig, nats_server: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doors_module, "CUT_BYTES_MIN", 3)
    await rig.doors.hear(Heard("app.>", rig.note, {}))
    await rig.doors.flush()
    client = await patient.connect(nats_server.url)
    await client.publish(door_subject(3, "rude", "app.r.y"), b"lots")
    await client.publish(door_subject(3, "meek", "app.m.y"), b"1")
    await client.publish(door_subject(4, "meek", "app.m.y"), b"1")
    await until(lambda: len(rig.came) == 3)
    for door in (3, 4):
        rig.doors._clients[door]._transport.close()  # type: ignore[union-attr]
    await until(lambda: rig.cut == ["rude"])  # and not the other: it had sent next to nothing
    async with asyncio.timeout(ANSWER_S_MAX):
        while ("meek", "app.m.y", b"2") not in rig.came:
            with suppress(NatsError):
                await client.publish(door_subject(3, "meek", "app.m.y"), b"2")
            await asyncio.sleep(0.05)
    await client.close()
