"""Heads for local programs: get, set, the tree, and word of every change. The shell around the cores.

Requests are answered with JSON, refusals with ``{"error": {"code", "message"}}`` as everywhere. A
change, whoever made it, is announced on ``agent.changed.<node>.<type>.<key>``; ``agent.ready`` says that
announcements may have been missed before it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg

from backhaul_agent.apps.answering import answering
from backhaul_agent.apps.doors import ASKED, hear
from backhaul_agent.cancellation import heed_cancel
from backhaul_agent.commit.contents import ConfigWrite, Content
from backhaul_agent.commit.heads import Changed
from backhaul_agent.commit.queues import QueuedPublish
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import Config
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.sync.requests import (
    GET,
    NODE,
    READY,
    SET,
    TREE,
    CreateRequest,
    MirrorRequest,
    MoveRequest,
    NodeRequest,
    SetRequest,
    changed_subject,
    describe,
    find,
    read,
    require_named,
)
from backhaul_agent.sync.writes import ConfigWrites
from backhaul_codec.state import tree_text
from backhaul_codec.state.merge import Head, HeadKey

CHANGES_MAX = 10_000  # waiting to be announced; past it watchers are told to look for themselves


class ConfigService:
    """Answers requests and announces changes; lives as long as the daemon."""

    def __init__(self, writer: Writer, config: Config) -> None:
        self._writer = writer
        self._keeper = writer.keeper
        self._writes = ConfigWrites(self._keeper, value_bytes_max=config.ingest.value_bytes_max)
        # A write is made from the heads as they are, so the one before it must be in them.
        self._one_by_one = asyncio.Lock()
        self._before: asyncio.Future[RefusedError | None] | None = None
        self._changes: deque[Changed] = deque(maxlen=CHANGES_MAX)
        self._missed = True
        self._wake = asyncio.Event()
        writer.keeper.on_heads.append(self._on_heads)

    async def run(self, client: Client) -> None:
        """Serve and announce for as long as the connection lives (the caller cancels)."""
        for subject in (GET, f"{GET}.>", TREE):
            await hear(client, subject, answering(self._look), **ASKED)
        for subject in (SET, f"{SET}.*", f"{NODE}.*"):
            await hear(client, subject, answering(self._change), **ASKED)
        self._missed = True
        while True:
            await self._announce(client)
            await self._wake.wait()

    async def _announce(self, client: Client) -> None:
        self._wake.clear()
        if self._missed:
            self._missed = False
            self._changes.clear()
            await client.publish(READY, b"{}")
        while self._changes:
            key, head = self._changes.popleft()
            await client.publish(changed_subject(key), msgspec.json.encode(describe(key, head)))
        heed_cancel()

    def _on_heads(self, changed: list[Changed]) -> None:
        self._missed |= len(self._changes) + len(changed) > CHANGES_MAX
        self._changes += changed
        self._wake.set()

    async def _look(self, message: Msg) -> Any:
        if message.subject == TREE:
            tree = self._keeper.tree
            return tree_text.describe(tree) | {"lines": tree_text.render(tree)}
        return {"points": find(self._keeper.heads, message.subject, message.data)}

    async def set(self, request: SetRequest) -> list[dict[str, Any]]:
        """Write points for the agent itself, as ``agent.set`` does; return them, now durable.

        Raises:
            RefusedError: nothing was written.
        """
        return await self._write(lambda: self._writes.set(request), 0)

    async def _change(self, message: Msg) -> Any:
        subject, data = message.subject, message.data
        if subject.startswith(SET):
            request = read(data, SetRequest)
            require_named(subject, SET, request.node)
            make: Callable[[], ConfigWrite] = partial(self._writes.set, request)
        else:
            make = self._maker(subject.removeprefix(f"{NODE}."), data)
        return {"points": await self._write(make, len(data))}

    async def _write(self, make: Callable[[], ConfigWrite], size: int) -> list[dict[str, Any]]:
        async with self._one_by_one:
            if self._before is not None:  # whoever waited for it may have gone with its connection
                await asyncio.wait([self._before])
            write = make()
            await self._commit(write, size)
        return [
            describe(HeadKey.of(parent, point), Head.of(point)) for parent, point in write.addressed
        ]

    def _maker(self, what: str, data: bytes) -> Callable[[], ConfigWrite]:
        writes = self._writes
        makers: dict[str, tuple[type[Any], Callable[[Any], ConfigWrite]]] = {
            "create": (CreateRequest, writes.create),
            "mirror": (MirrorRequest, writes.mirror),
            "move": (MoveRequest, writes.move),
            "delete": (NodeRequest, writes.delete),
            "undelete": (NodeRequest, writes.undelete),
        }
        if what not in makers:
            raise RefusedError(
                Code.BAD_SUBJECT, f"{NODE}.{what} is none of create, mirror, move, delete, undelete"
            )
        kind, make = makers[what]
        return partial(make, read(data, kind))

    async def _commit(self, write: ConfigWrite, size: int) -> None:
        """Return when a write is durable.

        Raises:
            RefusedError: nothing of it was kept.
        """
        done: asyncio.Future[RefusedError | None] = asyncio.get_running_loop().create_future()

        def answer(_: Content, refusal: RefusedError | None) -> None:
            if not done.done():
                done.set_result(refusal)

        self._writer.submit(QueuedPublish(write, size, True, answer))
        self._before = done
        if (refusal := await asyncio.shield(done)) is not None:
            raise refusal
