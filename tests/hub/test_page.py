"""The page's side of the hub: logins by links, its services, its listener, and what its server may do."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from click.testing import CliRunner

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.access.revocations import revocations
from backhaul_hub.cli.main import cli
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RightsError
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.nats.nkey import new_key, public_text
from backhaul_hub.page.logins import SERVER
from backhaul_hub.people import page_rows
from backhaul_hub.people.identity import May, Person, require_person_name
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.setup.websocket_config import CONF, INCLUDE
from backhaul_runtime.clock import SystemClock
from tests.support.hub_acts import make_link, remove_person
from tests.support.hub_layout import local_layout
from tests.support.nats_server import ConfiguredServer
from tests.support.rig import patient
from tests.support.rig.ports import free_port
from tests.support.waiting import until

from .people_hub import ANNA, MINE, THEIRS, Guest, People

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.nats, pytest.mark.asyncio(loop_scope="module")]

CLOCK = SystemClock()


class PageGate:
    """Who serves the page, with its own login."""

    def __init__(self, guest: Guest) -> None:
        self.guest = guest

    async def log_in(self, token: str, raw: bytes) -> dict[str, Any]:
        key = base64.urlsafe_b64encode(raw).decode().rstrip("=")
        return await self.guest.ask("login", token=token, public_key=key)


async def gate(people: People, stack: AsyncExitStack) -> PageGate:
    refused: list[str] = []

    async def note(error: Exception) -> None:
        refused.append(str(error))

    client = await patient.connect(
        people.hub.addresses(),
        user_credentials=str(people.hub.directory / "creds/page.creds"),
        inbox_prefix=SERVER.inbox,
        error_cb=note,
    )
    stack.push_async_callback(client.close)
    return PageGate(Guest(SERVER, client, refused))


async def test_a_link_gives_one_key_the_rights_of_its_person_until_that_is_removed(
    people: People,
) -> None:
    directory = people.hub.directory
    emil = Person("emil", "plant-7", May.COMMAND)
    await people.add(emil)
    async with AsyncExitStack() as stack:
        page = await gate(people, stack)
        token = await make_link(directory, CLOCK, "emil", 60.0)
        key = new_key("user")
        raw = base64.b32decode(key.public)[1:33]
        assert public_text("user", raw) == key.public
        said = await page.log_in(token, raw)
        assert [said["name"], said["group"], said["may"]] == list(emil)
        body = body_of(said["jwt"])
        assert body["sub"] == key.public
        assert body["exp"] == said["ends_s"]
        assert 12 * 3600 - 60 < said["ends_s"] - CLOCK.now_ns() / 1e9 <= 12 * 3600
        assert body["nats"]["pub"]["allow"] == [emil.questions]
        assert body["nats"]["sub"]["allow"] == [emil.live, f"{emil.inbox}.>"]
        assert body["nats"]["allowed_connection_types"] == ["WEBSOCKET"]
        again = await page.log_in(token, secrets.token_bytes(32))
        assert "was used already" in again["error"]["message"]

        for taken in (raw, base64.b32decode(body_of(_creds(people, ANNA))["sub"])[1:33]):
            # Else who is removed later would lock out whose key that is.
            other = await make_link(directory, CLOCK, "emil", 60.0)
            said = await page.log_in(other, taken)
            assert "somebody's already" in said["error"]["message"]
            await page.log_in(other, secrets.token_bytes(32))
        old = await make_link(directory, CLOCK, "emil", 0.0)
        assert (
            "has expired" in (await page.log_in(old, secrets.token_bytes(32)))["error"]["message"]
        )
        unused = await make_link(directory, CLOCK, "emil", 60.0)
        await remove_person(directory, CLOCK, "emil")
        async with await Registry.open_existing(directory / "hub.db") as registry:
            revoked = {each.public_key: each for each in await revocations(registry)}
            assert revoked[key.public].expires_s == body["exp"]
            assert await page_rows.sessions(registry) == []
            assert unused.encode() not in (directory / "hub.db").read_bytes()
        said = await page.log_in(unused, secrets.token_bytes(32))
        assert "this link is none" in said["error"]["message"]
    with pytest.raises(RightsError, match="no user emil"):
        await make_link(directory, CLOCK, "emil", 60.0)


def _creds(people: People, person: Person) -> str:
    text = people.creds(person).read_text()
    return text.split("\n")[1]


async def test_two_browsers_with_one_link_come_at_once_and_one_is_let_in(people: People) -> None:
    async with AsyncExitStack() as stack:
        page = await gate(people, stack)
        token = await make_link(people.hub.directory, CLOCK, "berta", 60.0)
        said = await asyncio.gather(
            *(page.log_in(token, secrets.token_bytes(32)) for _ in range(4))
        )
        assert sum("jwt" in each for each in said) == 1


async def test_who_serves_the_page_may_pass_on_logins_and_nothing_else(people: People) -> None:
    async with AsyncExitStack() as stack:
        guest = (await gate(people, stack)).guest
        for subject in (
            *(SERVER.ask("fleet"), ANNA.ask("get"), "hub.stop", "hub.status", "up.fleet.x.x.x"),
            *("$JS.API.INFO", "inbox.anna.x", Person("page", "fleet", May.WRITE).ask("login")),
        ):
            assert await guest.is_refused(publish=subject), subject
        for subject in ("up.>", "inbox.>", "ask.>", ">", "_INBOX.>", "inbox.anna.>"):
            assert await guest.is_refused(subscribe=subject), subject
    assert "alone passes on logins" in await people.carl.error(
        "login", token="x" * 43, public_key="x" * 43
    )
    with pytest.raises(RightsError, match="serves the page"):
        require_person_name("page")


async def test_rows_hours_and_series_are_of_what_is_seen(people: People) -> None:
    mine = await people.anna.ask("fleet", series=["battery.soc"])
    assert [each["device"] for each in mine["devices"]] == [MINE]
    assert mine["devices"][0]["groups"] == ["plant-7"]
    assert mine["devices"][0]["values"] == [None]
    assert mine["next"] is None
    every = await people.carl.ask("fleet")
    assert [each["device"] for each in every["devices"]] == [MINE, THEIRS]
    assert [each["device"] for each in (await people.dora.ask("fleet"))["devices"]] == [THEIRS]
    assert "node.type" in await people.carl.error("fleet", series=["x"])

    now_ns = CLOCK.now_ns()
    stretch = {"from_ns": (now_ns // HOUR_NS - 3) * HOUR_NS, "to_ns": now_ns}
    told = await people.carl.ask("hours", **stretch)
    assert told["devices"] == [{"device": each, "hours": "----"} for each in (MINE, THEIRS)]
    assert (told["hours"], told["next"]) == (4, None)
    told = await people.anna.ask("hours", **stretch)
    assert [each["device"] for each in told["devices"]] == [MINE]
    told = await people.anna.ask("hours", device=MINE, **stretch)
    assert told["devices"] == [{"device": MINE, "hours": "----", "reports": []}]
    assert "VID-002 is not below it" in await people.anna.error("hours", device=THEIRS, **stretch)
    assert "1 to 744" in await people.carl.error("hours", from_ns=0, to_ns=now_ns)
    assert (await people.carl.ask("series"))["series"] == []
    assert "VID-002 is not below it" in await people.anna.error("series", device=THEIRS)


async def test_the_health_of_the_hub_is_for_who_sees_all(people: People) -> None:
    told = await people.carl.ask("health")
    assert {each["stream"] for each in told["shards"]} == {"UP_00"}
    assert {"UP_00", "DOWN_00"} <= {each["stream"] for each in told["streams"]}
    assert told["devices"] == 2
    assert told["jetstream"] is True
    for guest in (people.anna, people.dora):
        assert "for who sees all" in await guest.error("health")


async def test_an_older_hub_gets_its_listener_by_a_command_and_no_leaf_comes_in_there(
    tmp_path: Path,
) -> None:
    hub = tmp_path / "hub"
    port, leaf_port, socket = (free_port() for _ in range(3))
    create_hub(hub, local_layout(port, leaf_port))
    assert INCLUDE not in (hub / "hub.conf").read_text()
    words = ["page-listener", "--dir", str(hub)]
    refused = await asyncio.to_thread(CliRunner().invoke, cli, words)
    assert "names no place" in str(refused.exception)
    (hub / "creds/page.creds").unlink()
    toml = (hub / "hub.toml").read_text()
    before, _, _ = toml.partition("[page]")
    (hub / "hub.toml").write_text(
        f'{before}[page]\nlisten = "127.0.0.1:8470"\nurl = "https://fleet.example.org/"\n'
        f'websocket = "ws://127.0.0.1:{socket}"\n'
    )
    for _ in range(2):
        done = await asyncio.to_thread(CliRunner().invoke, cli, words)
        assert done.exit_code == 0, done.exception
    assert (hub / "hub.conf").read_text().count(INCLUDE) == 1
    assert (hub / CONF).stat().st_mode & 0o777 == 0o600
    assert (hub / "creds/page.creds").exists()
    vehicle = await asyncio.to_thread(
        CliRunner().invoke, cli, ["add-device", "VID-001", "--dir", str(hub)]
    )
    assert vehicle.exit_code == 0, vehicle.output
    login = json.loads((hub / "devices/VID-001/identity.json").read_text())
    (tmp_path / "leaf.creds").write_text(Credentials(login["seed"], "", login["jwt"], 0).text())
    server = ConfiguredServer(tmp_path, hub / "hub.conf", port)
    server.start()
    try:
        url = f"ws://127.0.0.1:{socket}"
        async with aiohttp.ClientSession() as session:
            async with session.ws_connect(url, origin="https://fleet.example.org") as there:
                assert (await there.receive_bytes()).startswith(b"INFO")
            with pytest.raises(aiohttp.WSServerHandshakeError):
                await session.ws_connect(url, origin="http://127.0.0.1:8470")
        at_port = await leaf_log(tmp_path / "right", f"nats-leaf://127.0.0.1:{leaf_port}")
        assert "using domains" in at_port, "the same login is good for the leafs' port"
        at_socket = await leaf_log(tmp_path / "wrong", url)
        assert "Authorization Violation" in at_socket
    finally:
        server.stop()


async def leaf_log(directory: Path, url: str) -> str:
    """Return the log of a leaf server with the vehicle's login that dials there, once it is in or was refused."""
    directory.mkdir()
    port, creds = free_port(), directory.parent / "leaf.creds"
    (directory / "leaf.conf").write_text(
        f'listen: "127.0.0.1:{port}"\nserver_name: leaf\n'
        f'leafnodes {{ remotes: [{{ url: "{url}", credentials: "{creds}" }}] }}\n'
    )
    leaf = ConfiguredServer(directory, directory / "leaf.conf", port)
    leaf.start()
    try:
        log = directory / "server.log"
        ends = ("Authorization Violation", "JetStream using domains")
        await until(lambda: any(each in log.read_text() for each in ends), log.name)
        return log.read_text()
    finally:
        leaf.stop()
