"""Who is connected, where leafs come and go while the servers are asked for their lists."""

from __future__ import annotations

import json
from base64 import urlsafe_b64encode
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_hub.errors import HubError
from backhaul_hub.links import leaf_connections as leafs
from backhaul_hub.links.leaf_connections import Leafs
from backhaul_runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Callable

VID = "VID-001"


class Scene:
    """One server: what it lists, what is done to it, and what happens until its list is looked at."""

    def __init__(self) -> None:
        self.listed: list[int] = []
        """Connections of the one device."""
        self.events: list[tuple[str, int]] = []
        self.kicked: list[int] = []
        self.told: list[str] = []
        self.listens: list[str] = []
        self.listing: list[bool] = []
        self.silent = False
        client: Any = None
        self.leafs = Leafs(
            client,
            "A",
            SystemClock(),
            lambda name: name,
            lambda device: self.told.append("up"),
            lambda device: self.told.append("down"),
            on_listening=lambda device: self.told.append("listens"),
        )

    async def ask_all(
        self, client: object, verb: str, servers: int, options: dict[str, bool], **_: object
    ) -> list[dict[str, Any]]:
        known = [{"account": "A", "id": each, "name": VID} for each in self.listed]
        counts: dict[str, Any] = {"in_msgs": 0, "in_bytes": 0, "subscriptions": len(self.listens)}
        self.listing.append(options["subscriptions"])
        if options["subscriptions"]:
            counts["subscriptions_list"] = self.listens
        for kind, number in self.events:
            await self.hear(kind, number)
        return [{"server": {"id": "S1"}, "data": {"leafs": [each | counts for each in known]}}]

    async def ask_server(self, client: object, server: str, verb: str, body: Any) -> dict[str, Any]:
        assert server == "S1"
        if verb == "KICK":
            self.kicked.append(body["cid"])
            return {}
        assert (verb, body) == ("LEAFZ", {"account": "A"})
        for kind, number in self.events:
            await self.hear(kind, number)
        if self.silent:
            raise HubError("no answer")
        return {"data": {"leafs": [{"id": each, "subscriptions": 3} for each in self.listed]}}

    async def hear(self, kind: str, number: int) -> None:
        login = urlsafe_b64encode(json.dumps({"name": VID, "sub": "U"}).encode()).decode()
        client = {"kind": "Leafnode", "id": number, "jwt": f"e30.{login.rstrip('=')}.sig"}
        said = json.dumps({"client": client, "server": {"id": "S1"}}).encode()
        message: Any = SimpleNamespace(subject=f"$SYS.ACCOUNT.A.{kind}", data=said)
        await self.leafs._on_event(message)


@pytest.fixture
def scene(monkeypatch: pytest.MonkeyPatch) -> Scene:
    scene = Scene()
    replaced: list[Callable[..., Any]] = [scene.ask_all, scene.ask_server]
    for each in replaced:
        monkeypatch.setattr(leafs, each.__name__, each)
    return scene


async def test_who_comes_while_the_servers_are_asked_is_there_and_can_be_cut(scene: Scene) -> None:
    """As where a rotation has its leaf dial again: that is done once."""
    scene.events = [("CONNECT", 7)]
    await scene.leafs.refresh()
    await scene.leafs.cut(VID)
    assert (scene.told, scene.kicked) == (["up"], [7])


async def test_who_comes_back_while_the_servers_are_asked_is_cut_where_it_is(scene: Scene) -> None:
    await scene.hear("CONNECT", 7)
    scene.listed, scene.events = [7], [("DISCONNECT", 7), ("CONNECT", 8)]
    await scene.leafs.refresh()
    await scene.leafs.cut(VID)
    assert (scene.told, scene.kicked) == (["up", "down", "up"], [8])


async def test_who_goes_while_the_servers_are_asked_is_gone(scene: Scene) -> None:
    await scene.hear("CONNECT", 7)
    scene.listed, scene.events = [7], [("DISCONNECT", 7)]
    await scene.leafs.refresh()
    assert scene.told == ["up", "down"]
    assert not scene.leafs.links[VID].up


async def test_who_was_missed_is_taken_from_the_list(scene: Scene) -> None:
    scene.listed = [7]
    await scene.leafs.refresh()
    assert scene.leafs.links[VID].up
    scene.listed = []
    await scene.leafs.refresh()
    assert scene.told == ["up", "down"]


OWN = [f"blobr.{VID}.tok", f"clkr.{VID}.tok", "$JS.x"]


async def test_an_agent_is_there_for_as_long_as_somebody_waits_for_its_answers(
    scene: Scene,
) -> None:
    """The leaf tells the hub's server at once what nobody there listens to any more."""
    scene.listed, scene.listens = [7], OWN
    await scene.hear("CONNECT", 7)
    link = scene.leafs.links[VID]
    assert link.agent is None
    await scene.leafs.refresh()
    assert link.agent is True
    since_ns = link.agent_since_ns
    scene.listens = ["$JS.x"]  # killed: there is less of it
    await scene.leafs.refresh()
    await scene.leafs.refresh()
    assert link.agent is False
    assert link.agent_since_ns > since_ns
    scene.listens = OWN
    await scene.leafs.refresh()
    await scene.leafs.refresh()
    assert link.agent is True
    scene.listed = []
    await scene.leafs.refresh()
    assert (link.up, link.agent) == (False, None)


async def test_what_leafs_listen_to_is_listed_now_and_then_and_where_it_has_changed(
    scene: Scene,
) -> None:
    scene.listed, scene.listens = [7], OWN
    await scene.hear("CONNECT", 7)
    for _ in range(30):
        await scene.leafs.refresh()
    assert 3 <= scene.listing.count(True) <= 6
    scene.listens = [*OWN, "more"]
    scene.listing.clear()
    await scene.leafs.refresh()
    await scene.leafs.refresh()
    assert any(scene.listing)
    # As many as before, of another kind: found at the latest with the next list.
    scene.listens = [*OWN[:1], *OWN[2:], "more", "another"]
    for _ in range(10):
        await scene.leafs.refresh()
    assert scene.leafs.links[VID].agent is False


async def test_another_devices_answers_are_none_of_an_agents(scene: Scene) -> None:
    scene.listed, scene.listens = [7], [f"clkr.{VID}0.tok", "clkr.x.y"]
    await scene.hear("CONNECT", 7)
    await scene.leafs.refresh()
    assert scene.leafs.links[VID].agent is False


async def test_who_has_logged_in_can_be_asked_once_its_own_connection_listens(scene: Scene) -> None:
    await scene.hear("CONNECT", 7)
    await scene.leafs._look_at_new()
    scene.listed = [6]  # that one is about to be found dead
    await scene.leafs._look_at_new()
    assert scene.told == ["up"]
    scene.listed = [6, 7]
    await scene.leafs._look_at_new()
    await scene.leafs._look_at_new()
    assert scene.told == ["up", "listens"]


async def test_who_goes_while_it_is_asked_for_is_not_asked(scene: Scene) -> None:
    await scene.hear("CONNECT", 7)
    scene.listed, scene.events = [7], [("DISCONNECT", 7)]
    await scene.leafs._look_at_new()
    assert scene.told == ["up", "down"]


async def test_whose_agent_asks_can_be_asked_whatever_the_server_answers(scene: Scene) -> None:
    scene.silent = True
    await scene.hear("CONNECT", 7)
    await scene.leafs._look_at_new()
    scene.leafs.heard(VID)
    scene.leafs.heard(VID)
    assert scene.told == ["up", "listens"]
