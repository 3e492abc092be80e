"""A hub with people in it, for tests of what they may ask and hear.

plant-7 stands above VID-001, depot above VID-002. People log in as the server knows them; what they send is
what any NATS client can send.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import nats
import pytest_asyncio

from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.logins import new_login
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.people.identity import May, Person
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import add_person, create_device
from tests.support.rig import patient
from tests.support.rig.parts import HubRig
from tests.support.rig.patient import PatientClient
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    import pytest
    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.aio.subscription import Subscription

MINE, THEIRS = "VID-001", "VID-002"
ANNA = Person("anna", "plant-7", May.WRITE)
BERTA = Person("berta", "plant-7", May.READ)
CARL = Person("carl", "fleet", May.COMMAND)
DORA = Person("dora", "depot", May.COMMAND)
EVERYBODY = (ANNA, BERTA, CARL, DORA)
# Whom a hub gave too much.
EVE = Person("eve", "plant-7", May.READ)
WAIT_S = 60.0
QUIET_S = 0.3


async def next_told(heard: Subscription) -> Msg:
    """Return what is told next, but for shadows: those come when the hub gets to them."""
    while True:
        message = await heard.next_msg(timeout=WAIT_S)
        if ".$.shadow." not in message.subject:
            return message


class Guest:
    """One person's connection; `refused` is what the server refused it."""

    def __init__(self, person: Person, client: Client, refused: list[str]) -> None:
        self.person = person
        self.client = client
        self.refused = refused

    async def ask(self, service: str, **question: Any) -> dict[str, Any]:
        """Ask as any NATS client does."""
        return await self.ask_on(self.person.ask(service), question)

    async def ask_on(self, subject: str, question: dict[str, Any]) -> dict[str, Any]:
        message = await self.client.request(subject, json.dumps(question).encode(), timeout=WAIT_S)
        answer: dict[str, Any] = json.loads(message.data)
        return answer

    async def error(self, service: str, **question: Any) -> str:
        answer = await self.ask(service, **question)
        return f"{answer['error']['message']} ({answer['error']['hint']})"

    async def is_refused(self, *, publish: str = "", subscribe: str = "") -> bool:
        """Try it, and tell whether the server refused it."""
        if publish:
            await self.client.publish(publish, b"{}")
        if subscribe:
            await self.client.subscribe(subscribe)
        # The server answers in order: with this refusal all others have come.
        await self.client.publish("no.right.to.this", b"x")
        await until(lambda: any("no.right.to.this" in error for error in self.refused))
        found = "\n".join(self.refused).lower()
        self.refused.clear()
        return f'"{(publish or subscribe).lower()}"' in found


class People:
    """A running hub, its operator, and everybody."""

    def __init__(self, hub: HubRig, operator: Client, stack: AsyncExitStack) -> None:
        self.hub = hub
        self.operator = operator
        self.stack = stack
        self.anna: Guest
        self.berta: Guest
        self.carl: Guest
        self.dora: Guest
        self.eve: Guest

    async def log_in(self, person: Person) -> Guest:
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error))

        client = await patient.connect(
            self.hub.addresses(),
            user_credentials=str(self.creds(person)),
            inbox_prefix=person.inbox,
            error_cb=note,
            max_reconnect_attempts=0,
        )
        self.stack.push_async_callback(client.close)
        return Guest(person, client, refused)

    def creds(self, person: Person) -> Path:
        return self.hub.directory / "people" / f"{person.name}.creds"

    async def add(self, person: Person) -> Guest:
        """Give somebody credentials, and log in with them."""
        await add_person(self.hub.directory, SystemClock(), person, self.creds(person))
        return await self.log_in(person)

    async def is_kept_out(self, person: Person) -> bool:
        """Tell whether the server refuses somebody's credentials."""
        refused: list[str] = []

        async def note(error: Exception) -> None:
            refused.append(str(error))

        loop = asyncio.get_running_loop()
        end_s = loop.time() + 2 * WAIT_S
        while loop.time() < end_s:
            client = PatientClient()
            # Who is not served in time is neither let in nor kept out.
            with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
                await client.connect(
                    self.hub.addresses(),
                    user_credentials=str(self.creds(person)),
                    error_cb=note,
                    allow_reconnect=False,
                )
            let_in = client.is_connected
            await client.close()
            if let_in or any("authorization" in each.lower() for each in refused):
                return not let_in
            await asyncio.sleep(0.05)
        raise AssertionError(f"{person.name} is neither let in nor kept out")

    def add_with_all_rights(self, person: Person) -> None:
        """Give somebody credentials of a hub that gives too much."""
        keys, now_s = read_keys(self.hub.directory), SystemClock().now_ns() // 10**9
        self.creds(person).write_text(new_login(keys, person.name, "PEOPLE", now_s=now_s).text())

    async def do(self, service: str, **question: Any) -> dict[str, Any]:
        """Ask as the hub's operator."""
        message = await self.operator.request(
            f"hub.{service}", json.dumps(question).encode(), timeout=WAIT_S
        )
        answer: dict[str, Any] = json.loads(message.data)
        assert "error" not in answer, answer
        return answer

    async def node(self, do: str, address: str, **question: Any) -> None:
        await self.do("node", do=do, address=address, **question)

    async def values(self, device: str) -> dict[str, Any]:
        answer = await self.do("get", device=device)
        return {f"{each['node']}.{each['type']}": each["value"] for each in answer["points"]}


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def people(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[People]:
    directory: Path = tmp_path_factory.mktemp("people")
    async with AsyncExitStack() as stack:
        hub = HubRig(directory / "hub", watermark_interval_s=0.2)
        await hub.init()
        for device in (MINE, THEIRS):
            await create_device(
                hub.directory, load(hub.directory), SystemClock(), device, DeviceSettings()
            )
        stack.push_async_callback(hub.stop)
        await hub.start()
        operator = await hub.connect()
        stack.push_async_callback(operator.close)
        some = People(hub, operator, stack)
        for group, device in (("plant-7", MINE), ("depot", THEIRS)):
            await some.node("create", group)
            await some.node("move", device, under=group)
        for person in EVERYBODY:
            setattr(some, person.name, await some.add(person))
        some.add_with_all_rights(EVE)
        some.eve = await some.log_in(EVE)
        yield some
