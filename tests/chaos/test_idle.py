"""What a fault could not do is counted, and not printed as done."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest
from nats.js import JetStreamContext

from tests.chaos.faults import KINDS
from tests.chaos.schedule import Fault

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from nats.aio.client import Client

    from tests.chaos.world import World

FAULT = Fault(1.0, 0.0, "stalled-source", "VID-001")


class Server:
    """A server that answers each question with the next of some answers."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self._answers = iter(answers)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[Server]:
        yield self

    def jetstream(self, **options: Any) -> JetStreamContext:
        return JetStreamContext(cast("Client", self), **options)

    async def request(self, *_: object, **__: object) -> SimpleNamespace:
        if (answer := next(self._answers, None)) is None:
            raise ConnectionResetError
        return SimpleNamespace(data=json.dumps(answer).encode())


class Leaf(Server):
    """The leaf of a vehicle."""

    def __init__(self, directory: Path, *answers: dict[str, Any]) -> None:
        super().__init__(*answers)
        self.agent_toml = directory / "agent.toml"
        self.agent_toml.write_text('[device]\ntoken = "t"\n')


@pytest.mark.parametrize(
    ("answers", "idle"),
    [
        ([{"state": {"last_seq": 5}}, {}], 0),
        ([{"state": {"last_seq": 5}}, {"error": {"code": 404}}], 1),
        ([{"error": {"code": 404}}], 1),
        ([], 1),
    ],
)
async def test_a_source_that_could_not_be_stalled_is_counted(
    tmp_path: Path, answers: list[dict[str, Any]], idle: int
) -> None:
    vehicle = SimpleNamespace(rig=Leaf(tmp_path, *answers))
    world = SimpleNamespace(vehicles={"VID-001": vehicle}, idle=Counter[str]())
    await KINDS["stalled-source"](cast("World", world), FAULT)
    assert world.idle.total() == idle


@pytest.mark.parametrize("kind", ["again-down", "again-command"])
async def test_what_could_not_be_delivered_again_is_counted(kind: str) -> None:
    hub = Server({"error": {"code": 503, "err_code": 10039, "description": "not enabled"}})
    world = SimpleNamespace(hub=hub, idle=Counter[str](), copies=Counter[str]())
    await KINDS[kind](cast("World", world), Fault(1.0, 0.0, kind, "VID-001"))
    assert world.idle == {kind: 1}
