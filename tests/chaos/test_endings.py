"""The control plane may end where its server is away, and for no other reason; nothing else may at all."""

from __future__ import annotations

import os
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.chaos.endings import ended_wrongly, last_words
from tests.chaos.faults import KINDS
from tests.chaos.schedule import Fault
from tests.chaos.world import World
from tests.support.rig.parts import Part, RigError
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

CONTROL = "hub control plane"
AWAY = "backhaul-hub: no connection to the hub's nats-server at nats://x as c: OSError() (start it)"
QUIET = '{"event": "link_not_cut", "error": "nats.errors.NoRespondersError"}\n'
FULL = "backhaul-hub: hub.db: database or disk is full"


@pytest.mark.parametrize(
    "words",
    [
        AWAY,
        "backhaul-hub: no answer to $JS.API.STREAM.INFO.DOWN in 10 s",
        "backhaul-hub: UP_00: no answer in 5 s",
        "backhaul-hub: UP_00: no JetStream behind it, or no such stream",
        "backhaul-hub: no JetStream behind $JS.API.INFO (does this user belong to account HUB?)",
        "Traceback (most recent call last):\n  File x\nnats.errors.ConnectionClosedError: closed",
        "  | ExceptionGroup: of a TaskGroup\n  +-+---- 1 ----\n    | ConnectionResetError: lost\n    +--",
    ],
)
def test_the_control_plane_may_end_where_there_is_no_server(words: str) -> None:
    assert ended_wrongly([(CONTROL, QUIET + words)], hub_was_full=False) == []


@pytest.mark.parametrize(
    "words",
    [
        "Traceback (most recent call last):\n  File x\nKeyError: 'VID-001'",
        "ConnectionResetError: lost\n\nDuring handling of it\n\nTypeError: none of it",
        "backhaul-hub: another control plane runs here",
        "",
        FULL,
    ],
)
def test_the_control_plane_may_not_end_for_any_other_reason(words: str) -> None:
    assert len(ended_wrongly([(CONTROL, AWAY + "\n" + QUIET + words)], hub_was_full=False)) == 1


def test_the_control_plane_may_end_where_its_disk_was_full() -> None:
    assert ended_wrongly([(CONTROL, FULL)], hub_was_full=True) == []


def test_nothing_else_may_end_at_all() -> None:
    wrong = ended_wrongly([("VID-001 agent", "OSError: x")] * 2, hub_was_full=True)
    assert wrong == ["VID-001 agent ended by itself: OSError: x"] * 2


def test_last_words_come_after_what_was_logged() -> None:
    assert last_words(f"KeyError: 1\n{QUIET}  tail\nValueError: 2\n") == "ValueError: 2"


async def ended(part: Part) -> None:
    """Have a program end, and nobody have asked it to."""
    os.kill(part.pid, signal.SIGABRT)

    def gone() -> bool:
        try:
            return not part.pid
        except RigError:
            return True

    await until(gone)


def world_of(directory: Path) -> World:
    server = Part("hub server", ["sleep", "600"], directory / "log")
    return World(cast("Any", SimpleNamespace(server=server)), {}, {})


async def test_what_had_ended_by_itself_when_it_was_to_be_killed_is_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    server = world.hub.server
    await server.start()
    await world.kill(server)
    await server.start()
    await ended(server)
    await world.kill(server)
    assert (world.killed, world.ended) == ({server.name: 1}, {server.name: 1})
    assert [name for name, _ in world.last_words] == [server.name]


async def test_a_server_that_ends_while_its_disk_is_full_is_counted(tmp_path: Path) -> None:
    world = world_of(tmp_path)
    server = world.hub.server

    async def fill() -> None:
        await ended(server)

    async def drain() -> None:
        pass

    world.disks = {("hub", "hub"): cast("Any", SimpleNamespace(fill=fill, drain=drain))}
    await server.start()
    await KINDS["full-hub"](world, Fault(1.0, 0.0, "full-hub", "hub"))
    await server.stop()
    assert world.ended == {server.name: 1}
