"""What a device's user may do at the hub's real server, under its own lanes' names and no others'.

The device logs in as a client here, so that the server says what it refuses; what a leaf may is the
same list. Replies are not checked against permissions by any server: that is what accounts are for.
"""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import nats
import pytest

from backhaul_codec.protocol.credentials import Credentials
from backhaul_codec.protocol.identity import decode_identity
from backhaul_hub.access import rules as accounts
from backhaul_hub.access.account_files import write_accounts
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.push import AccountKeeper
from backhaul_hub.access.rules import vehicle_rights
from backhaul_hub.config import load
from backhaul_hub.db.devices import read_devices
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import add_device
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.lane_names import DOWN
from backhaul_hub.links.down_consumers import ensure_down_consumers
from backhaul_hub.links.reset_service import ResetService
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import change_nodes, create_device
from tests.support.hub_layout import local_layout
from tests.support.rig import patient
from tests.support.rig.parts import HubRig
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.device import Device

pytestmark = pytest.mark.nats

MINE, THEIRS = "VID-001", "VID-002"
NODES = ("battery", "motor rear", "BMS")


class Login:
    """One device's user, logged in as a client; `refused` is what the server refused it."""

    def __init__(self, client: Client, refused: list[str], device: Device) -> None:
        self.client = client
        self.refused = refused
        self.device = device

    async def refusals(self, publish: list[str], subscribe: list[str]) -> list[str]:
        """Try all of it, and return what was refused."""
        self.refused.clear()
        for subject in publish:
            await self.client.publish(subject, b"x")
        for subject in subscribe:
            await self.client.subscribe(subject)
        # The server answers in order: with this refusal all others have come.
        await self.client.publish("no.right.to.this", b"x")
        await until(lambda: any("no.right.to.this" in error for error in self.refused))
        # nats-py says them in lower case.
        found = "\n".join(self.refused).lower()
        return [subject for subject in (*publish, *subscribe) if f'"{subject.lower()}"' in found]


class Fleet:
    """A hub's server with two devices, each with the same two nodes, and both their users."""

    def __init__(
        self, hub: HubRig, mine: Login, theirs: Login, control: Client, up: Client
    ) -> None:
        self.hub = hub
        self.mine = mine
        self.theirs = theirs
        self.control = control
        self.up = up
        """A user of account UP."""


async def log_in(stack: AsyncExitStack, hub: HubRig, device: Device) -> Login:
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error))

    directory = hub.directory / "devices" / device.id
    identity = decode_identity((directory / "identity.json").read_bytes())
    creds = directory / "device.creds"
    creds.write_text(Credentials(identity.seed, device.public_key, identity.jwt).text())
    client = await patient.connect(
        hub.addresses(),
        user_credentials=str(creds),
        error_cb=note,
        inbox_prefix=f"_INBOX_{device.id}".encode(),
    )
    stack.push_async_callback(client.close)
    return Login(client, refused, device)


@pytest.fixture
async def fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Fleet]:
    rights = replace(vehicle_rights(), connection_types=())
    monkeypatch.setattr(accounts, "vehicle_rights", lambda: rights)
    async with AsyncExitStack() as stack:
        hub = HubRig(tmp_path / "hub")
        layout = local_layout(hub.client_port, hub.leaf_port)
        create_hub(hub.directory, layout)
        settings = DeviceSettings(nodes=NODES)
        await create_device(hub.directory, load(hub.directory), SystemClock(), MINE, settings)
        # As those that were added before tokens were short.
        monkeypatch.setattr(add_device, "new_device_token", lambda choice: "00ab" * 6)
        await create_device(hub.directory, load(hub.directory), SystemClock(), THEIRS, settings)
        async with await Registry.open(hub.directory / "hub.db") as registry:
            devices = await read_devices(registry)
            keys = read_keys(hub.directory)
            jwts = await AccountKeeper(keys, registry, SystemClock()).build()
        write_accounts(hub.directory, keys, jwts)
        stack.push_async_callback(hub.stop)
        await hub.server.start()
        await hub.server.wait_listening(hub.client_port)
        control = await hub.connect()
        stack.push_async_callback(control.close)
        api = JetStreamApi(control)
        await api.request(f"STREAM.CREATE.{DOWN}", {"name": DOWN, "subjects": ["in.>"]})
        for device in devices.values():
            await ensure_down_consumers(api, device)
        await ResetService(control, SystemClock()).listen(control)
        await control.flush()  # others ask: it is heard by now
        up = await stack.enter_async_context(hub.connection_in("UP"))
        mine, theirs = [await log_in(stack, hub, devices[id_]) for id_ in (MINE, THEIRS)]
        yield Fleet(hub, mine, theirs, control, up)


def published(device: Device, lane: str) -> list[str]:
    """What a device publishes for a lane."""
    durable = f"{DOWN}.{device.id}-{device.token}_{lane}"
    return [
        f"dlv.{device.id}.{device.token}_{lane}",
        f"hubapi.CONSUMER.RESET.{durable}",
        f"$JS.FC.{durable}.x9",
        f"$JS.FC.hub.ABC.{durable}.x9",
    ]


def subscribed(device: Device, lane: str) -> list[str]:
    """What a device listens to for a lane."""
    durable = f"{DOWN}.{device.id}-{device.token}_{lane}"
    return [
        f"$JS.{device.id}.API.CONSUMER.RESET.OUT_{lane}.{device.token}",
        f"$JS.FC.OUT_{lane}.{device.token}.*",
        f"$JS.FC.*.*.OUT_{lane}.{device.token}.*",
        f"dn.{device.id}.{device.token}_{lane}",
        f"$JSC.R.a.b.{durable}.*",
    ]


async def test_a_device_may_what_its_own_nodes_lanes_need(fleet: Fleet) -> None:
    lanes = ("n_battery", "n_motor%20rear", "n_BMS")
    assert [len(each.device.token) for each in (fleet.mine, fleet.theirs)] == [17, 24]
    for login in (fleet.mine, fleet.theirs):
        publish = [subject for lane in lanes for subject in published(login.device, lane)]
        subscribe = [subject for lane in lanes for subject in subscribed(login.device, lane)]
        assert await login.refusals(publish, subscribe) == []


async def test_a_device_may_nothing_for_lanes_of_another_or_for_lanes_that_nobody_named(
    fleet: Fleet,
) -> None:
    mine, theirs = fleet.mine.device, fleet.theirs.device
    lanes = [(theirs, "n_battery"), (theirs, "n_motor%20rear"), (mine, "n_gps"), (mine, "n_%")]
    publish = [subject for lane in lanes for subject in published(*lane)]
    subscribe = [subject for lane in lanes for subject in subscribed(*lane)]
    wild = [
        f"$JS.FC.*.{mine.token}.*",
        "$JS.FC.OUT_n_battery.*.*",
        f"dn.{MINE}.*",
        f"$JS.{MINE}.API.CONSUMER.RESET.*.{mine.token}",
        "$JS.FC.>",
    ]
    refused = await fleet.mine.refusals(publish, [*subscribe, *wild])
    assert refused == [*publish, *subscribe, *wild]


async def test_a_device_pushes_under_its_own_name_and_token_alone(fleet: Fleet) -> None:
    mine, theirs = fleet.mine.device, fleet.theirs.device
    own = [f"u.{MINE}.{mine.token}.{each}" for each in ("b", "n.battery.f.battery", "p.a.b.%")]
    others = [
        *(f"u.{THEIRS}.{theirs.token}.b", f"u.{THEIRS}.{mine.token}.b"),
        *(f"u.{MINE}.{theirs.token}.b", "u.b"),
    ]
    heard = [f"u.{MINE}.{mine.token}.c", "u.>"]
    assert await fleet.mine.refusals([*own, *others], heard) == [*others, *heard]


async def test_a_device_hears_what_is_spoken_to_it_alone_and_speaks_there_to_nobody(
    fleet: Fleet,
) -> None:
    mine, theirs = fleet.mine.device, fleet.theirs.device
    own = [f"w.{MINE}.{mine.token}.>", f"w.{MINE}.{mine.token}.c.1"]
    others = [
        *(f"w.{THEIRS}.{theirs.token}.>", f"w.{THEIRS}.{mine.token}.>", f"w.{MINE}.*.>"),
        *(f"w.{MINE}.{theirs.token}.c.1", f"w.*.{mine.token}.>", "w.>"),
    ]
    spoken = [f"w.{MINE}.{mine.token}.c.2", f"w.{THEIRS}.{theirs.token}.s.wake"]
    refused = await fleet.mine.refusals(spoken, [*own, *others])
    assert refused == [*spoken, *others]


async def test_a_device_resets_its_own_nodes_durable_and_no_other(fleet: Fleet) -> None:
    own = f"hubapi.CONSUMER.RESET.{DOWN}.{MINE}-{fleet.mine.device.token}_n_battery"
    answer = await fleet.mine.client.request(own, b"{}", timeout=30)
    assert "error" not in json.loads(answer.data), answer.data
    foreign = own.replace(fleet.mine.device.token, fleet.theirs.device.token)
    with pytest.raises(nats.errors.TimeoutError):
        await fleet.mine.client.request(foreign.replace(MINE, THEIRS), b"{}", timeout=0.5)
    await until(lambda: len(fleet.mine.refused) == 1)


async def test_what_nodes_lanes_deliver_and_acknowledge_crosses_between_the_accounts(
    fleet: Fleet,
) -> None:
    device = fleet.mine.device
    heard: dict[str, list[str]] = {"hub": [], "device": []}

    def listener(who: str) -> Any:
        async def hear(message: Any) -> None:
            heard[who].append(message.subject)

        return hear

    await fleet.up.subscribe("dlv.>", cb=listener("hub"))
    for subject in subscribed(device, "n_battery"):
        await fleet.mine.client.subscribe(subject, cb=listener("device"))
    await asyncio.gather(fleet.up.flush(), fleet.mine.client.flush())
    delivery = f"dlv.{MINE}.{device.token}_n_battery"
    await fleet.mine.client.publish(delivery, b"x")
    await until(lambda: heard["hub"] == [delivery])
    acknowledged = f"$JS.FC.OUT_n_battery.{device.token}.x9"
    # Of a node that nobody named nothing is exported, and so nothing arrives in account FLEET.
    await fleet.up.publish(f"$JS.FC.OUT_n_gps.{device.token}.x9", b"x")
    await fleet.up.publish(acknowledged, b"x")
    await fleet.up.publish(f"$JS.{MINE}.API.CONSUMER.RESET.OUT_n_battery.{device.token}", b"{}")
    await until(lambda: len(heard["device"]) == 2)
    assert heard["device"][0] == acknowledged


async def test_a_node_that_left_and_was_dropped_leaves_no_rights_in_the_next_login(
    fleet: Fleet,
) -> None:
    for _ in range(2):  # nothing of its lane is missing: the second time drops it
        await change_nodes(fleet.hub.directory, SystemClock(), MINE, ["motor rear"])
    device = fleet.mine.device
    async with AsyncExitStack() as stack:
        login = await log_in(stack, fleet.hub, device)
        kept = published(device, "n_motor%20rear"), subscribed(device, "n_motor%20rear")
        gone = published(device, "n_battery"), subscribed(device, "n_battery")
        assert await login.refusals(*kept) == []
        assert await login.refusals(*gone) == [*gone[0], *gone[1]]
