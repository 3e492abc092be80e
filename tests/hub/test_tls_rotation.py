"""Certificates change under connected leafs, with real servers, and nobody notices; strangers do."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.nats.system_requests import ask_all, reload_servers
from backhaul_hub.tls.authority import AUTHORITY_LIFE, SERVER_LIFE, read_certificates
from backhaul_hub.tls.conf_text import tls_block
from backhaul_hub.tls.files import Renewal, make_certificates, renew, server_certificates
from backhaul_hub.tls.watch import CertificateWatch
from backhaul_runtime.clock import SystemClock
from tests.support.nats_server import NatsServer
from tests.support.rig import patient
from tests.support.rig.ports import free_port
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from nats.aio.client import Client

pytestmark = [pytest.mark.nats]
# The servers judge by their own clock; certificates hold whole seconds.
NOW = datetime.fromtimestamp(SystemClock().now_ns() // 10**9, UTC)
DEADLINE_S = 120.0


class HubServer:
    """A hub's server that speaks TLS, and vehicles' leafs, each of which may be wrong."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "hub"
        self.directory.mkdir()
        make_certificates(self.directory, {self.directory: ["localhost"]}, NOW)
        self.leaf_port = free_port()
        tls = tls_block(self.directory)
        extra = f"""
{tls}
leafnodes {{
listen: "127.0.0.1:{self.leaf_port}"
{tls}
}}
accounts {{
  SYS {{ users: [{{ user: system, password: system }}] }}
  FLEET {{ users: [{{ user: vehicle, password: vehicle }}] }}
}}
system_account: SYS
"""
        self.server = NatsServer(self.directory, domain="hub", extra=extra)
        self.servers = [self.server]

    def vehicle(
        self, name: str, ca: Path | None, *, host: str = "localhost", port: int = 0
    ) -> NatsServer:
        """Make a leaf's server that trusts what a file holds now; None: it knows of no TLS."""
        tls = ""
        if ca is not None:
            own = self.directory.with_name(f"{name}.pem")
            own.write_bytes(ca.read_bytes())
            tls = f'tls {{\n ca_file: "{own}"\n timeout: 10\n}}'
        extra = f"""
leafnodes {{
  reconnect: "200ms"
  remotes: [{{
    urls: ["nats-leaf://vehicle:vehicle@{host}:{port or self.leaf_port}"]
    first_info_timeout: "15s"
    {tls}
  }}]
}}
"""
        self.servers.append(NatsServer(self.directory.with_name(name), domain=name, extra=extra))
        return self.servers[-1]

    @property
    def ca(self) -> Path:
        return self.directory / "tls" / "ca.pem"

    async def client(self, user: str) -> Client:
        """Connect to the hub over TLS."""
        trusted = ssl.create_default_context(cafile=str(self.ca))
        url = f"tls://localhost:{self.server.port}"
        return await patient.connect(
            url, user=user, password=user, tls=trusted, allow_reconnect=False
        )


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HubServer]:
    """A hub's server that runs; with it all that were made through it are stopped."""
    monkeypatch.setattr("backhaul_hub.nats.system_requests._WAIT_S", DEADLINE_S)
    hub = HubServer(tmp_path)
    hub.server.start()
    try:
        yield hub
    finally:
        for server in hub.servers:
            server.stop()


async def leaf_ids(system: Client) -> dict[str, int]:
    """The ids of the leafs' connections, by name."""
    (answer,) = await ask_all(system, "LEAFZ", 1)
    return {leaf["name"]: leaf["id"] for leaf in answer["data"].get("leafs") or []}


async def connected(system: Client, *names: str) -> dict[str, int]:
    """Wait until exactly these leafs are connected; return their connections' ids."""
    async with asyncio.timeout(DEADLINE_S):
        while (found := await leaf_ids(system)).keys() != set(names):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return found


async def shown_until(system: Client) -> list[datetime]:
    """Until when the certificates last that the server shows to clients and to leafs."""
    (answer,) = await ask_all(system, "VARZ", 1)
    shown = answer["data"]["tls_cert_not_after"], answer["data"]["leaf"]["tls_cert_not_after"]
    return [datetime.fromisoformat(each) for each in shown]


class Traffic:
    """Numbers that a program on a vehicle publishes, and those that come to the hub."""

    def __init__(self, vehicle: Client, hub: Client) -> None:
        self.sent = 0
        self.heard: list[int] = []
        self._vehicle, self._hub = vehicle, hub

    async def start(self) -> None:
        """Listen, and wait until the leaf knows of it."""

        async def hear(message: Any) -> None:
            self.heard.append(int(message.data))

        await self._hub.subscribe("reading", cb=hear)
        async with asyncio.timeout(DEADLINE_S):
            while not self.heard:
                await self._vehicle.publish("reading", b"-1")
                await asyncio.sleep(0.02)
        self._sending = asyncio.create_task(self._send())

    async def goes_on(self) -> None:
        """Wait until a hundred more have come."""
        at = len(self.heard)
        await until(lambda: len(self.heard) > at + 100, "more readings")

    async def stop(self) -> None:
        """Send no more, and see that all that were sent have come, in order."""
        self._sending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._sending
        await until(lambda: self.heard[-1] == self.sent - 1, "the last reading")
        assert [each for each in self.heard if each >= 0] == list(range(self.sent))

    async def _send(self) -> None:
        while True:
            await self._vehicle.publish("reading", b"%d" % self.sent)
            self.sent += 1
            await asyncio.sleep(0.001)


async def test_certificate_and_authority_change_while_leafs_stay_and_traffic_goes_on(
    hub: HubServer,
) -> None:
    leaf = hub.vehicle("vehicle", hub.ca)
    leaf.start()
    system, listener = await hub.client("system"), await hub.client("vehicle")
    program = await patient.connect(leaf.url)
    before = await connected(system, "vehicle")
    traffic = Traffic(program, listener)
    await traffic.start()
    changes = Renewal(), Renewal(new_ca=True), Renewal(forget_former=True)
    for year, change in enumerate(changes, start=1):
        renew(hub.directory, change, NOW + timedelta(days=365 * year))
        await reload_servers(system, 1)
        (renewed,) = server_certificates(hub.directory).values()
        assert await shown_until(system) == [renewed.not_valid_after_utc] * 2
        await traffic.goes_on()
        assert await leaf_ids(system) == before
    await traffic.stop()
    for client in (program, listener, system):
        await client.close()


async def test_a_vehicle_that_knows_the_former_authority_comes_back_until_that_is_forgotten(
    hub: HubServer,
) -> None:
    former, both = hub.vehicle("former", hub.ca), None
    renew(hub.directory, Renewal(new_ca=True), NOW)
    both = hub.vehicle("both", hub.ca)
    system = await hub.client("system")
    await reload_servers(system, 1)
    former.start()
    both.start()
    await connected(system, "former", "both")
    renew(hub.directory, Renewal(forget_former=True), NOW)
    await reload_servers(system, 1)
    for leaf in (former, both):
        leaf.stop()
        leaf.start()
    await until(lambda: "certificate signed by unknown authority" in former.logged())
    await connected(system, "both")
    await system.close()


async def test_strangers_are_refused_and_the_leafs_log_says_why(
    hub: HubServer, tmp_path: Path
) -> None:
    (foreign := tmp_path / "foreign").mkdir()
    make_certificates(foreign, {foreign: ["localhost"]}, NOW)
    plain_port = free_port()
    # Whoever stands between and speaks no TLS: the vehicle must not log in there.
    stranger = NatsServer(
        tmp_path / "stranger", extra=f'leafnodes {{ listen: "127.0.0.1:{plain_port}" }}'
    )
    hub.servers.append(stranger)
    stranger.start()
    refused = {
        hub.vehicle("wrong-ca", foreign / "tls" / "ca.pem"): "signed by unknown authority",
        hub.vehicle("wrong-name", hub.ca, host="127.0.0.1"): "cannot validate certificate for 127",
        hub.vehicle("no-tls", None): "signed by unknown authority",
        hub.vehicle("plain-hub", hub.ca, port=plain_port): "TLS",
    }
    right = hub.vehicle("right", hub.ca)
    for leaf in (*refused, right):
        leaf.start()
    system = await hub.client("system")
    for leaf, reason in refused.items():
        await until(lambda leaf=leaf, reason=reason: reason in leaf.logged(), reason)  # type: ignore[misc]
    await connected(system, "right")
    await system.close()


async def test_what_lasts_until_when_is_what_the_server_shows_not_what_stands_in_a_file(
    hub: HubServer,
) -> None:
    system = await hub.client("system")
    watch = CertificateWatch(hub.directory, system, 1)
    await watch.look()
    authority = read_certificates(hub.ca.read_text())[0].subject.rfc4514_string()
    ports = {"hub, client port", "hub, leaf port"}
    assert watch.until == dict.fromkeys(ports, NOW + SERVER_LIFE) | {
        authority: NOW + AUTHORITY_LIFE
    }
    later = NOW + timedelta(days=100)
    renew(hub.directory, Renewal(), later)
    await watch.look()
    assert watch.until["hub, leaf port"] == NOW + SERVER_LIFE
    await reload_servers(system, 1)
    await watch.look()
    assert {watch.until[port] for port in ports} == {later + SERVER_LIFE}
    hub.server.stop()
    await watch.look()
    assert {watch.until[port] for port in ports} == {later + SERVER_LIFE}
    await system.close()
