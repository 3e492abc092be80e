"""State and configuration for programs on the vehicle: get, set, watch, and the tree.

    async with connect("nats://127.0.0.1:4222") as agent:
        config = ConfigClient(agent)
        await config.set("gps", {"rate": 5, "mode": "fast"})   # all or nothing; returns when durable
        async for point in config.watch("gps"):                # what is, then each change
            print(point["type"], point["value"])

Points are dicts as the agent has them in JSON, see docs/sync.md.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from nats.aio.msg import Msg

from backhaul_agent.client.client import Agent
from backhaul_agent.sync.requests import CHANGED, GET, NODE, READY, SET, TREE
from backhaul_codec import Value
from backhaul_codec.state.json_values import value_to_json
from backhaul_codec.subjects import encode_token

LOOK_S = 1.0  # how often a watcher sees whether its connection is a new one
Points = list[dict[str, Any]]


class ConfigClient:
    """Heads, as a program on the vehicle sees them.

    All methods raise RefusedError with a code and a sentence, NotKnownError where no answer came in
    time (a write may or may not be done then; to repeat it does no harm), NoAgentError.
    """

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def get(self, *names: str, deleted: bool = False) -> Points:
        """Return the points of a node and its edges, of a type, of a key; without names all."""
        subject = ".".join([GET, *map(encode_token, names)])
        return await self._points(subject, {"deleted": deleted})

    async def set(
        self,
        node: str,
        values: Mapping[str | tuple[str, str], Value],
        *,
        delete: Iterable[str | tuple[str, str]] = (),
        parent: str = "",
    ) -> Points:
        """Write points of a node, or of an edge; all of them or none. Return the written points.

        ``values``: by type, or by (type, key). ``delete``: points to be deleted.
        """
        points: Points = []
        for name, value in values.items():
            shown, dtype = value_to_json(value)
            points.append(_named(name) | {"value": shown, "dtype": dtype})
        points += [_named(name) | {"delete": True} for name in delete]
        return await self.write(node, points, parent=parent)

    async def write(self, node: str, points: Points, *, parent: str = "") -> Points:
        """Write points given as in JSON; see `set`."""
        subject = f"{SET}.{encode_token(node)}"
        return await self._points(subject, {"node": node, "points": points, "parent": parent})

    async def change_tree(self, what: str, **fields: Any) -> Points:
        """Create, move, mirror, delete or undelete a node, see docs/sync.md for the fields."""
        return await self._points(f"{NODE}.{what}", fields)

    async def tree(self) -> dict[str, Any]:
        """Return the tree: `root`, `nodes`, `edges`, `left_out`, `deleted`, and a drawing, `lines`."""
        return await self._agent.ask(TREE, b"")

    async def watch(self, *names: str) -> AsyncGenerator[dict[str, Any], None]:
        """Yield the points that are, deleted ones too, then every change of them, for ever.

        A point may come twice. After an interruption everything is looked at again, so that the last
        one yielded of each series is what stands.
        """
        async with self._listen(*map(encode_token, names[:1])) as news:
            while True:
                connection = self._agent.nats.stats["reconnects"]
                for point in await self.get(*names, deleted=True):
                    yield point
                while self._agent.nats.stats["reconnects"] == connection:
                    try:
                        async with asyncio.timeout(LOOK_S):
                            message = await news.get()
                    except TimeoutError:
                        continue
                    if message.subject == READY:
                        break
                    point = msgspec.json.decode(message.data)
                    if (point["node"], point["type"], point["key"])[: len(names)] == names:
                        yield point

    async def _points(self, subject: str, body: dict[str, Any]) -> Points:
        answer = await self._agent.ask(subject, msgspec.json.encode(body))
        points: Points = answer["points"]
        return points

    @asynccontextmanager
    async def _listen(self, node: str = "") -> AsyncIterator[asyncio.Queue[Msg]]:
        nats, news = self._agent.nats, asyncio.Queue[Any]()
        # Of a node, and of the edges that lead to it: a program may have no right to more.
        changes = [f"{CHANGED}.{node}.*.*", f"{CHANGED}.*.{node}.*.*"] if node else [f"{CHANGED}.>"]
        subscriptions = [
            await nats.subscribe(subject, cb=news.put) for subject in (*changes, READY)
        ]
        await nats.flush()
        try:
            yield news
        finally:
            if nats.is_connected:
                for subscription in subscriptions:
                    await subscription.unsubscribe()


def _named(name: str | tuple[str, str]) -> dict[str, Any]:
    type_, key = (name, "") if isinstance(name, str) else name
    return {"type": type_, "key": key}
