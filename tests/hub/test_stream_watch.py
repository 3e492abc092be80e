"""Watching streams: what one of them suffers from keeps nobody from looking at the others."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from backhaul_hub.config import load
from backhaul_hub.control import stream_watch
from backhaul_hub.control.stream_watch import Streams
from backhaul_hub.errors import JetStreamError
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from backhaul_runtime.jetstream import CLUSTER_NOT_AVAILABLE, INSUFFICIENT_STORAGE
from tests.support.hub_layout import local_layout
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from backhaul_hub.nats.jetstream import Json


async def test_lanes_are_watched_while_other_streams_are_in_trouble(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream that was deleted cannot be made anew for want of room, and a shard has no leader."""
    monkeypatch.setattr(stream_watch, "_INTERVAL_S", 0.0)
    directory, looked, tried = tmp_path / "hub", list[list[bool]](), list[str]()
    create_hub(directory, replace(local_layout(4222, 7422), shards=2))

    async def request(verb: str, *_: object, **__: object) -> Json:
        if verb == "STREAM.NAMES":
            return {"streams": [], "total": 0}
        if verb == "STREAM.INFO.RELAY_00":
            raise JetStreamError(verb, CLUSTER_NOT_AVAILABLE, "")
        return {"created": "once", "config": {}}

    async def info(stream: str) -> Json:
        return await request(f"STREAM.INFO.{stream}")

    async def no_room(declared: Json) -> None:
        tried.append(declared["name"])
        raise JetStreamError("STREAM.CREATE", INSUFFICIENT_STORAGE, "")

    async def ends_well() -> bool:
        return False

    async def happens(*_: object) -> None:
        raise AssertionError

    def look(infos: list[Json | None], *_: object) -> list[str]:
        looked.append([info is None for info in infos])
        return []

    async def feeds(shard: int, *_: object) -> None:
        fed.append(shard)

    fed: list[int] = []
    noted: list[Json] = []
    reader = SimpleNamespace(note_state=noted.append)
    api = SimpleNamespace(request=request, info=info)
    down, sources = SimpleNamespace(look=ends_well), SimpleNamespace(look=look)
    ground: Any = SimpleNamespace(config=load(directory), clock=SystemClock(), api=api)
    fleet: Any = SimpleNamespace(sources=sources)
    others: Any = SimpleNamespace(leafs=SimpleNamespace(links={}), readers=[reader] * 2)
    watch = Streams(ground, fleet, others, others, others, others, others, _lower_limits=False)
    watch.down = cast("Any", down)
    watch.feeds = cast("Any", SimpleNamespace(look=feeds))
    monkeypatch.setattr(watch, "_reconcile", no_room)
    for loss in ("_made_anew", "_say_again"):
        monkeypatch.setattr(watch, loss, happens)
    watching = asyncio.create_task(watch.run())
    try:
        await until(lambda: looked != [] or watching.done())
    finally:
        watching.cancel()
        await asyncio.wait([watching])
    assert looked[0] == [True, False]
    assert tried
    assert noted
    assert fed[0] == 1
