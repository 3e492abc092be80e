"""Whose agent is there: what is told of it, when, and when again."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from backhaul_codec.protocol.presence import BEAT, BEAT_S, presence_message, read_presence
from backhaul_hub.broadcast.presence import GONE_AFTER_S, Presence, PresenceChanges
from backhaul_hub.device import DeviceLink
from backhaul_hub.errors import HubError
from backhaul_hub.links import leaf_connections as leafs


def test_a_word_is_read_as_it_was_written() -> None:
    for there in (True, False):
        subject, body = presence_message("VID-001", there=there)
        assert read_presence(subject, body) == ("VID-001", there)
    for subject, body in (
        (BEAT, b"{}"), (f"{BEAT}.VID-001", b"{}"), (f"{BEAT}.", b'{"alive": true}'),
        ("in.VID-001.x", b'{"alive": true}'), (f"{BEAT}.a.b", b'{"alive": true}'),
    ):  # fmt: skip
        assert read_presence(subject, body) is None


class Fleet:
    def __init__(self) -> None:
        self.links: dict[str, DeviceLink] = {}
        self.changes = PresenceChanges()

    def look(self, at_s: float) -> list[tuple[str, bool]]:
        found = self.changes.look(["A", "B"], self.links, at_s)
        for device, there in found:
            self.changes.told(device, there=there)
        return found


def test_each_change_is_told_once_and_an_agent_is_gone_after_a_moment() -> None:
    fleet = Fleet()
    fleet.links["A"] = DeviceLink(up=True, agent=True)
    assert fleet.look(0) == [("A", True)]
    assert fleet.look(GONE_AFTER_S) == [("B", False)], "of whom an earlier control plane spoke"
    fleet.links["A"].agent = None
    assert fleet.look(100) == []
    fleet.links["A"].agent = True
    assert fleet.look(105) == [], "a link that broke and was back"
    for agent, up in ((False, True), (None, False)):
        fleet.links["A"] = DeviceLink(up=up, agent=agent)
        assert fleet.look(200) == []
        assert fleet.look(200 + GONE_AFTER_S) == [("A", False)]
        assert fleet.look(300) == []
        fleet.links["A"] = DeviceLink(up=True, agent=True)
        assert fleet.look(301) == [("A", True)]
    fleet.changes.forget()
    assert fleet.look(400) == [("A", True), ("B", False)]


async def test_a_beat_says_that_somebody_looks() -> None:
    told: list[tuple[str, bytes]] = []
    now_s = 0.0

    async def publish(subject: str, body: bytes) -> dict[str, Any]:
        told.append((subject, body))
        return {}

    async def publish_all(words: list[tuple[str, bytes]], *, taken: Any) -> None:
        told.extend(words)
        taken(words)

    api: Any = SimpleNamespace(publish=publish, publish_all=publish_all)
    clock: Any = SimpleNamespace(monotonic_s=lambda: now_s)
    looks = True
    links = {"A": DeviceLink(up=True, agent=True)}
    presence = Presence(api, clock, lambda: ["A"], links, lambda: looks)
    await presence._tell()
    assert told == [(f"{BEAT}.A", b'{"alive": true}'), (BEAT, b"{}")]
    await presence._tell()
    assert len(told) == 2
    now_s = BEAT_S
    await presence._tell()
    assert told[2:] == [(BEAT, b"{}")]
    presence.forget()
    await presence._tell()
    assert len(told) == 5
    # The servers do not say who is there: what was said must not go on holding.
    looks, now_s = False, 2 * BEAT_S
    await presence._tell()
    assert len(told) == 5


async def test_where_a_long_answer_fails_who_is_connected_is_asked_for_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[bool] = []
    now_s = 100.0

    async def ask_all(_: Any, __: str, ___: int, options: dict[str, Any], **____: Any) -> list[Any]:
        asked.append(options["subscriptions"])
        if asked[-1]:
            raise HubError("none answered")
        return []

    monkeypatch.setattr(leafs, "ask_all", ask_all)
    clock: Any = SimpleNamespace(monotonic_s=lambda: now_s, now_ns=lambda: 0)
    nothing: Any = lambda *_: None
    them = leafs.Leafs(nothing, "ACCOUNT", clock, nothing, nothing, nothing)
    assert not them.looks()
    with pytest.raises(HubError):
        await them.refresh()
    assert not them.looks()
    await them.refresh()
    assert asked == [True, False]
    assert them.looks()
    now_s += leafs.LOOKED_S_MAX
    assert not them.looks()
