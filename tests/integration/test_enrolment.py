"""Enrolment by token, and revocation, between a real hub and real vehicles.

One hub for all of it. Not covered: what hostile vehicles try (tests/security), systemd; TLS, slow links and clusters are in
`test_enrolment_elsewhere.py`.
"""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import AsyncExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from backhaul_agent.client import connect
from backhaul_codec.protocol.enrolment import (
    read_answer,
    read_token,
    request_subject,
    write_request,
    write_token,
)
from backhaul_codec.protocol.identity import Identity
from backhaul_hub.access.key_rotations import rotations
from backhaul_hub.config import load
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_runtime.clock import SystemClock
from tests.integration.enrolling import arguments, enrol, key_of, of, rotation
from tests.security.leaf_client import RawLeaf
from tests.support.enrolment_tokens import user_key
from tests.support.hub_acts import make_token
from tests.support.rig.parts import DeviceRig, Part, RigError, program, run_to_end, wait_for_log
from tests.support.waiting import until

from .conftest import World, lane, vouched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tests.security.leaf_client import Heard

pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]


class Hub(World):
    """The hub of this module, with the commands that are tested here."""

    async def run(self, command: str, device: str, *words: str) -> str:
        return await run_to_end(
            [program("backhaul-hub"), command, device, "--dir", str(self.hub.directory), *words]
        )

    async def token(self, device: str) -> str:
        """Make a token as the command does, without the time that a program takes to start."""
        directory = self.hub.directory
        settings = DeviceSettings()
        made = await make_token(
            directory, load(directory), SystemClock(), device, settings, expires_s=3600.0
        )
        return made.word

    def new_vehicle(self, device: str) -> DeviceRig:
        """Return a vehicle that is not enrolled yet; it is stopped with the module."""
        directory = self.directory / device
        directory.mkdir(exist_ok=True)
        rig = DeviceRig.of(self.hub, device, directory)
        self._stack.push_async_callback(rig.stop)
        return rig

    async def begin_to_enrol(self, rig: DeviceRig, token: str) -> Part:
        """Start the vehicle's command; it is ended with the module at the latest."""
        log = rig.agent_toml.with_name("enrol.log")
        asking = Part("enrolling", arguments(rig, token), log)
        self._stack.push_async_callback(asking.stop)
        await asking.start()
        return asking

    async def device(self, device: str) -> dict[str, Any]:
        report = await self.until(lambda report: any(of(device, report)))
        return next(of(device, report))

    async def until_link(self, device: str, *, up: bool) -> None:
        await self.until(lambda report: [it["link"]["up"] for it in of(device, report)] == [up])

    async def sources(self, device: str) -> list[dict[str, Any]]:
        async with self.hub.connection() as client:
            answer = await client.request("upapi.STREAM.INFO.RELAY_00", b"", timeout=30)
        found = json.loads(answer.data)["config"].get("sources") or []
        return [each for each in found if f"$JS.{device}.API" in json.dumps(each)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def hub(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Hub]:
    async with AsyncExitStack() as stack:
        yield await Hub(tmp_path_factory.mktemp("enrolment"), stack).start()


async def publish(rig: DeviceRig, value: float) -> None:
    async with connect(rig.url) as agent:
        await agent.publish("battery", "soc", value)


async def test_a_token_makes_a_vehicle_once(hub: Hub) -> None:
    token = await hub.run("enrol", "VID-001")
    rig = hub.new_vehicle("VID-001")
    assert "nats-server -c" in await enrol(rig, token)
    key = key_of(rig)
    await rig.start()
    await hub.until_link("VID-001", up=True)

    assert "written" not in await enrol(rig, token)
    assert key_of(rig) == key

    other = hub.new_vehicle("VID-001-thief")
    with pytest.raises(RigError, match=r"was used at .* by another key"):
        await enrol(other, token)
    assert not other.agent_toml.exists()
    log = hub.hub.control.logged().decode()
    assert f'"public_key": "{key}", "event": "enrolled"' in log
    assert '"code": "used"' in log
    assert read_token(token).seed not in log

    await publish(rig, 81.5)
    await hub.until(lambda report: lane(report).get("watermark", 0) >= 1)
    await rig.stop()


async def test_what_is_no_token_of_this_hub_is_refused_with_why(hub: Hub) -> None:
    rig = hub.new_vehicle("VID-002")
    first, second = [await hub.token("VID-002") for _ in range(2)]
    with pytest.raises(RigError, match="the token is void: VID-002 was given another token"):
        await enrol(rig, first)
    short = json.loads(await hub.run("enrol", "VID-003", "--expires", "1s", "--json"))
    expires_s = read_token(short["token"]).expires_s
    await until(lambda: SystemClock().now_ns() > expires_s * 10**9)
    with pytest.raises(RigError, match="it has expired at"):
        await enrol(hub.new_vehicle("VID-003"), short["token"])
    with pytest.raises(RigError, match="a damaged token, or only a part of it"):
        await enrol(rig, second[:-9])
    with pytest.raises(RigError, match="VID-001 is enrolled already"):
        await hub.run("enrol", "VID-001")
    assert await enrol(rig, second)


async def test_a_token_is_good_for_asking_and_nothing_else(hub: Hub) -> None:
    own, other = [read_token(await hub.token(f"VID-02{each}")) for each in range(2)]
    login = Identity(device=own.id, token=own.id, leaf_urls=(), jwt=own.jwt, seed=own.seed)
    key, port = user_key(7), hub.hub.leaf_port
    stolen = write_request(other.id, key)

    async def tried(deed: Callable[[RawLeaf], Awaitable[object]]) -> list[Heard]:
        leaf = await RawLeaf.of(login, "127.0.0.1", port, name=f"tried-{id(deed)}").open()
        try:
            assert await leaf.logged_in()
            await deed(leaf)
            await leaf.flush()
            return leaf.heard
        finally:
            await leaf.close()

    for subject in (
        request_subject(other.id), "up.VID-001.e.x", "in.VID-001.c.1", "hub.reload", "clk.VID-001",
        "$JS.API.STREAM.DELETE.UP_00", "hubapi.CONSUMER.RESET.DOWN_00.x",
    ):  # fmt: skip
        assert await tried(partial(RawLeaf.publish, subject=subject, payload=stolen)) == []
    for subject in ("enrol.*", ">", "_INBOX_*.>", f"_INBOX_{other.id}.>", "up.>", "in.>", "dn.>"):
        assert await tried(partial(_listen, subject)) == []
    forged = f"$JS.ACK.a.b.1.1.1.1.0@{request_subject(other.id)}"
    mine = request_subject(own.id)
    assert await tried(partial(RawLeaf.publish, subject=mine, payload=stolen, reply=forged)) == []
    # Neither of the two was used up by all that. What may be asked, is answered.
    asked = write_request(own.id, key)
    (answer,) = await tried(partial(RawLeaf.request, subject=mine, payload=asked))
    assert isinstance(read_answer(answer.payload, "VID-020"), Identity)
    await enrol(hub.new_vehicle("VID-021"), write_token(other))
    assert len((await hub.report())["streams"]) == 1


async def _listen(subject: str, leaf: RawLeaf) -> None:
    await leaf.listen(subject)


async def test_killed_when_the_hub_has_answered_the_next_run_ends_it(hub: Hub) -> None:
    token = await hub.token("VID-004")
    rig = hub.new_vehicle("VID-004")
    seen = hub.hub.control.logged_bytes
    asking = await hub.begin_to_enrol(rig, token)
    await wait_for_log(hub.hub.control, '"event": "enrolled"', seen)
    await asking.stop(signal.SIGKILL)
    await enrol(rig, token)
    assert not (await hub.device("VID-004"))["revoked_ns"]
    await rig.leaf.start()
    await hub.until_link("VID-004", up=True)
    await rig.stop()


async def test_without_a_control_plane_a_token_can_be_made_and_the_vehicle_waits(hub: Hub) -> None:
    await hub.hub.control.stop()
    token = await hub.token("VID-005")
    rig = hub.new_vehicle("VID-005")
    asking = await hub.begin_to_enrol(rig, token)
    await wait_for_log(asking, "not answered yet")
    await hub.hub.start_control()
    await until(rig.agent_toml.exists)
    await asking.stop()


async def test_a_revoked_vehicle_is_cut_and_stays_out_until_it_is_enrolled_anew(hub: Hub) -> None:
    rig = hub.new_vehicle("VID-006")
    first = await hub.token("VID-006")
    await enrol(rig, first)
    # Lanes that are pushed have no sources that could be seen to go.
    text = rig.agent_toml.read_text()
    rig.agent_toml.write_text(text.replace("[link]\n", "[link]\npush = false\n"))
    await rig.start()
    await publish(rig, 1.0)
    await hub.until(lambda report: lane(report, "VID-006").get("watermark", 0) == 1)
    assert await hub.sources("VID-006")
    old = key_of(rig)

    assert "stays, in the streams and in the history" in await hub.run("revoke", "VID-006")
    await hub.until_link("VID-006", up=False)
    while await hub.sources("VID-006"):  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    ask = [program("backhaul-agent"), "status", "--config", str(rig.agent_toml)]
    said = ""
    while f"the hub does not let the key {old} in: it was revoked" not in said:
        said = await run_to_end([*ask, "--dir", str(rig.agent_toml.parent)])

    shown = await run_to_end([program("backhaul-hub"), "devices", "--dir", str(hub.hub.directory)])
    assert "revoked" in next(line for line in shown.splitlines() if "VID-006" in line)

    # A later account update, and a restart of all of the hub.
    await hub.run("add-device", "VID-007", "--per-node", "--node", "motor")
    await hub.hub.stop()
    seen = rig.leaf.logged_bytes
    await hub.hub.start()
    await wait_for_log(rig.leaf, "Authorization Violation", seen)
    assert not (await hub.device("VID-006"))["link"]["up"]
    with pytest.raises(RigError, match="VID-006 was revoked"):
        await enrol(rig, first)

    await publish(rig, 2.0)
    await rig.stop()
    await enrol(rig, await hub.token("VID-006"))
    assert key_of(rig) != old
    await rig.start()
    await vouched(rig)
    await publish(rig, 3.0)
    report = await hub.until(lambda report: lane(report, "VID-006").get("messages", 0) >= 3)
    assert lane(report, "VID-006")["gaps"] == []
    await rig.stop()


async def test_without_a_control_plane_a_vehicle_is_cut_too(hub: Hub) -> None:
    rig = hub.new_vehicle("VID-008")
    await enrol(rig, await hub.token("VID-008"))
    await rig.leaf.start()
    await hub.until_link("VID-008", up=True)
    await hub.hub.control.stop()
    seen = rig.leaf.logged_bytes
    await hub.run("revoke", "VID-008")
    await wait_for_log(rig.leaf, "Authorization Violation", seen)
    await hub.hub.start_control()
    assert not (await hub.device("VID-008"))["link"]["up"]


async def test_with_no_server_running_a_revoked_vehicle_never_gets_in(hub: Hub) -> None:
    rig = hub.new_vehicle("VID-009")
    await enrol(rig, await hub.token("VID-009"))
    await rig.leaf.start()
    await hub.until_link("VID-009", up=True)
    await hub.hub.stop()
    await hub.run("revoke", "VID-009")
    seen = rig.leaf.logged_bytes
    await hub.hub.server.start()
    await wait_for_log(rig.leaf, "Authorization Violation", seen)
    await hub.hub.server.wait_listening(hub.hub.client_port)
    await hub.hub.start_control()
    assert not (await hub.device("VID-009"))["link"]["since_ns"]


async def test_a_vehicle_gets_another_key_over_the_air(hub: Hub) -> None:
    rig = hub.new_vehicle("VID-010")
    await enrol(rig, await hub.token("VID-010"))
    old, creds = key_of(rig), rig.agent_toml.with_name("device.creds").read_text()
    await rig.start()
    await hub.until_link("VID-010", up=True)

    assert "is asked for another key" in await hub.run("rotate", "VID-010")
    await hub.until(lambda report: rotation(report, "VID-010").get("state") == "done")
    new = key_of(rig)
    assert new != old
    assert rotation(await hub.report(), "VID-010")["public_key"] == new
    await hub.until_link("VID-010", up=True)
    await until(lambda: not (rig.agent_toml.parent / "backhaul-agent/key-rotation.json").exists())

    # The old key is shut out from now on.
    seen = rig.leaf.logged_bytes
    await rig.leaf.stop()
    rig.agent_toml.with_name("device.creds").write_text(creds)
    await rig.leaf.start()
    await wait_for_log(rig.leaf, "Authorization Violation", seen)
    await rig.stop()


@pytest.mark.parametrize("stage", ["asked", "signed"])
async def test_it_goes_on_where_both_ends_were_killed(hub: Hub, stage: str) -> None:
    device = f"VID-011-{stage}"
    rig = hub.new_vehicle(device)
    await enrol(rig, await hub.token(device))
    old = key_of(rig)
    await rig.start()
    await hub.until_link(device, up=True)
    if stage == "asked":
        await rig.agent.stop(signal.SIGKILL)
    seen = hub.hub.control.logged_bytes
    await hub.run("rotate", device)
    await wait_for_log(hub.hub.control, f'"state": "{stage}"', seen)
    await rig.agent.stop(signal.SIGKILL)
    await hub.hub.control.stop(signal.SIGKILL)
    async with await Registry.open_existing(hub.hub.directory / "hub.db") as registry:
        goes_on = (await rotations(registry))[device].under_way
    # Signed, it goes on by itself: where it came to its end before the kills, it begins anew.
    assert goes_on or stage == "signed"
    assert ("is at it already" in await hub.run("rotate", device)) is goes_on
    await rig.leaf.stop(signal.SIGKILL)
    await hub.hub.start_control()
    await rig.start()
    await hub.until(lambda report: rotation(report, device).get("state") == "done")
    assert key_of(rig) != old
    await hub.until_link(device, up=True)
    await rig.stop()
