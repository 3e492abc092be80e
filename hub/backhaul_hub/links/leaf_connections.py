"""Connected vehicles: leaf connects and disconnects, from the hub server's system account."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_hub.access.rules import clock_answer_subject
from backhaul_hub.device import DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.links.first_interest import FirstInterest
from backhaul_hub.nats.jwt import body_of
from backhaul_hub.nats.system_requests import ask_all, ask_server
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

LEAFS_INTERVAL_S = 5.0
"""How often the server is asked who is connected."""
LOOKED_S_MAX = 30.0
_LAST_S = 0.5
_LISTED_EACH = 6
"""What leafs listen to is asked for each so many times, and where any of them has more or less of it."""


class Leafs:
    """Keeps `links` up to date and reports every change.

    Events are prompt but can be missed (the control plane was down, its own link to the server
    was cut), so the server's list of leafs is asked for now and then as well.

    Args:
        client: a connection in the system account.
        account: public key of the one that leafs are in.
        device_of: tells whose leaf has a name; the name itself is what a leaf says of itself.
        on_connect, on_disconnect: called with the device id.
        on_listening: called with the device id once the hub knows what its leaf listens to, after on_connect.
        on_login: called with the device id and the public key that it has logged in with, where an
            event says so: some are missed.
        on_claims: called with what the login says that the hub has signed, as on_login.
        carried: called with a device and what came over each of its connections.
        servers: how many the hub has; a leaf may be at any of them.
    """

    def __init__(
        self,
        client: Client,
        account: str,
        clock: Clock,
        device_of: Callable[[str], str | None],
        on_connect: Callable[[str], None],
        on_disconnect: Callable[[str], None],
        on_login: Callable[[str, str], None] = lambda device, public_key: None,
        *,
        on_listening: Callable[[str], None] = lambda device: None,
        on_claims: Callable[[dict[str, Any]], None] = lambda _: None,
        carried: Callable[[str, dict[object, Carried]], None] = lambda *_: None,
        servers: int = 1,
    ) -> None:
        self._client = client
        self._account = account
        self._clock = clock
        self._device_of = device_of
        self._on_connect = on_connect
        self._on_disconnect = on_disconnect
        self._carried = carried
        self._on_login = on_login
        self._on_claims = on_claims
        self._on_listening = on_listening
        self._servers = servers
        self._first = FirstInterest()
        self._came = asyncio.Event()
        self.links: dict[str, DeviceLink] = {}
        # Of each device that is connected: at which server, and the connection's number there.
        self._connections: dict[str, tuple[str, int]] = {}
        self._silent: set[str] = set()
        # How much each connection listens to, as it was when all that was listed; and when to list it again.
        self._listened: dict[tuple[str, int], int] = {}
        self._list_in = 0
        self._looked_s = -math.inf

    def looks(self) -> bool:
        """Say whether the servers have lately told the connected leafs: else the list may be of the past."""
        return self._clock.monotonic_s() - self._looked_s < LOOKED_S_MAX

    async def start(self) -> None:
        """Subscribe to the events and take stock. Do this before anything depends on `links`."""
        await self._client.subscribe(f"$SYS.ACCOUNT.{self._account}.*", cb=self._on_event)
        # Whose server is late by so much is found at the next look, or is told by an event before.
        await self.refresh(last_s=_LAST_S)

    async def watch(self, interval_s: float) -> None:
        """Take stock every `interval_s` seconds (event loop's clock), for ever."""
        while True:
            await asyncio.sleep(interval_s)
            try:
                await self.refresh()
            except (HubError, NatsError, ValueError) as error:
                log.warning("leafs_unknown", error=str(error))

    async def watch_new(self) -> None:
        """Ask the servers for the subscriptions of each leaf that has just connected, until it has some; for ever."""
        took_s = 0.0
        while True:
            now_s = self._clock.monotonic_s()
            if (wait_s := self._first.look_in_s(took_s, now_s)) is None:
                self._came.clear()
                await self._came.wait()
                continue
            await asyncio.sleep(wait_s)
            began_s = self._clock.monotonic_s()
            await self._look_at_new()
            took_s = self._clock.monotonic_s() - began_s

    async def _look_at_new(self) -> None:
        at = {self._connections[each][0] for each in self._first.awaited}
        listens: dict[tuple[str, int], int] = {}
        for server in at:
            try:
                answer = await ask_server(self._client, server, "LEAFZ", {"account": self._account})
            except HubError as error:
                log.warning("new_leafs_unknown", server=server, error=str(error))
                continue
            for leaf in answer.get("data", {}).get("leafs") or []:
                listens[server, leaf["id"]] = int(leaf.get("subscriptions", 0))
        counts = {
            device: listens.get(self._connections[device], 0) for device in self._first.awaited
        }
        for device in self._first.counted(counts, self._clock.monotonic_s()):
            self._on_listening(device)

    def heard(self, device: str) -> None:
        """Take in a question of a device's agent: its leaf has told its subscriptions before."""
        if self._first.heard(device):
            self._on_listening(device)

    async def cut(self, device: str) -> None:
        """Cut a device's link, if it has one; its leaf dials again at once.

        Raises:
            HubError: its server refused, or does not answer.
        """
        if (connection := self._connections.get(device)) is not None:
            server, number = connection
            await ask_server(self._client, server, "KICK", {"cid": number})

    async def refresh(self, *, last_s: float | None = None) -> None:
        """Ask the servers for the connected leafs, and report those that no event told.

        `last_s`: as `ask_all`.

        Raises:
            HubError: none answered.
            NatsError: there is no connection.
        """
        before = dict(self._connections)
        lists = self._list_in <= 0
        if lists:
            # Of a large fleet that is a long answer: where it fails, who is connected is asked for alone.
            self._list_in = _LISTED_EACH
        asked = {"subscriptions": lists}
        answers = await ask_all(self._client, "LEAFZ", self._servers, asked, last_s=last_s)
        self._looked_s = self._clock.monotonic_s()
        listened = {
            (answer["server"]["id"], leaf["id"]): int(leaf.get("subscriptions", 0))
            for answer in answers
            for leaf in answer.get("data", {}).get("leafs") or []
        }
        same = listened == self._listened
        if not lists:
            self._list_in = self._list_in - 1 if same else 0
        self._listened = listened
        logged_in = {connection: device for device, connection in self._connections.items()}
        listed: dict[str, list[tuple[str, dict[str, Any]]]] = {}
        for answer in answers:
            for leaf in answer.get("data", {}).get("leafs") or []:
                if leaf.get("account") != self._account:
                    continue
                connection = answer["server"]["id"], leaf["id"]
                # As the event of its login had it, signed; the name is only what the leaf says.
                device = logged_in.get(connection) or self._device_of(leaf["name"])
                if device is None:
                    await self._cut_stranger(*connection)
                else:
                    listed.setdefault(device, []).append((answer["server"]["id"], leaf))
        for device, leafs in listed.items():
            known = self._connections.get(device)
            # Where it moved, the server that it left may not have noticed.
            server, leaf = next(
                (each for each in leafs if (each[0], each[1]["id"]) == known), leafs[0]
            )
            # Else an event has said since how it is.
            if known == before.get(device) and known != (server, leaf["id"]):
                self._connected(device, (server, leaf["id"]), str(leaf.get("ip", "")))
            self._note(device, self.links[device], leaf)
            self._carried(
                device,
                {
                    (at, each["id"]): Carried(
                        each["in_msgs"], each["in_bytes"], each["subscriptions"]
                    )
                    for at, each in leafs
                },
            )
        there = {each: at for each, at in before.items() if self._connections.get(each) == at}
        self._note_unlisted(there, listed.keys(), {answer["server"]["id"] for answer in answers})

    async def _cut_stranger(self, server: str, leaf: int) -> None:
        """Cut a leaf that logged in unheard and does not give its name; back again it is heard."""
        log.warning("nameless_leaf_cut", server=server, leaf=leaf)
        try:
            await ask_server(self._client, server, "KICK", {"cid": leaf})
        except HubError as error:
            log.warning("leaf_not_cut", error=str(error))

    def _note(self, device: str, link: DeviceLink, leaf: dict[str, Any]) -> None:
        if (rtt := leaf.get("rtt", "")) != link.rtt:
            link.rtt, link.answered_ns = rtt, self._clock.now_ns()
        link.address = str(leaf.get("ip") or link.address)
        listens = leaf.get("subscriptions_list")
        if listens is not None and self._connections.get(device, ("", 0))[1] == leaf["id"]:
            # Only an agent waits for the answer to its questions, and the leaf tells when it is gone.
            answers = clock_answer_subject(device, "")
            self._note_agent(link, there=any(each.startswith(answers) for each in listens or []))

    def _note_agent(self, link: DeviceLink, *, there: bool | None) -> None:
        if link.agent is not there:
            link.agent, link.agent_since_ns = there, self._clock.now_ns()

    def _note_unlisted(
        self, there: Mapping[str, tuple[str, int]], listed: Collection[str], answered: set[str]
    ) -> None:
        """Take those for gone that are in no list; where their server is silent, the second time.

        ``there``: who was when the servers were asked, and whom no event has concerned since.
        """
        silent = set()
        for device, (server, _) in there.items():
            if device in listed:
                continue
            if server in answered or server in self._silent:
                self._disconnected(device, "not in the server's list any more")
            else:
                silent.add(server)
        self._silent = silent

    async def _on_event(self, message: Msg) -> None:
        kind = message.subject.rpartition(".")[2]
        try:
            event = json.loads(message.data)
            client = event["client"]
            # As the hub has signed it; the leaf's name is what the leaf says.
            login = body_of(client["jwt"])
            device, public_key = login["name"], login["sub"]
            address = str(client.get("host", ""))
            connection = event["server"]["id"], client["id"]
        except (ValueError, KeyError, TypeError):
            return
        if client.get("kind") != "Leafnode":
            return
        if kind == "CONNECT":
            self._connected(device, connection, address)
            self._on_login(device, public_key)
            self._on_claims(login)
        elif kind == "DISCONNECT" and self._connections.get(device) == connection:
            # An old connection may be found dead after the new one is up; only the newest counts.
            self._disconnected(device, event.get("reason", ""))

    def _connected(self, device: str, connection: tuple[str, int], address: str) -> None:
        self._connections[device] = connection
        link = self.links.setdefault(device, DeviceLink())
        link.address = address or link.address
        link.up, link.since_ns = True, self._clock.now_ns()
        self._note_agent(link, there=None)
        self._list_in = 0
        log.info("leaf_connected", device=device)
        self._on_connect(device)
        self._first.connected(device, self._clock.monotonic_s())
        self._came.set()

    def _disconnected(self, device: str, reason: str) -> None:
        self._connections.pop(device, None)
        self._first.heard(device)
        link = self.links.setdefault(device, DeviceLink())
        link.up, link.since_ns = False, self._clock.now_ns()
        self._note_agent(link, there=None)
        log.info("leaf_disconnected", device=device, reason=reason)
        self._on_disconnect(device)


class Carried(NamedTuple):
    """The traffic of a connection since it was made."""

    messages: int = 0
    size: int = 0
    """Bytes."""
    subscriptions: int = 0
    """That it has now."""
