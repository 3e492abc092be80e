"""What the control plane does step by step, and what happens in between."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.device import Device
from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.links.down_consumers import down_consumers
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_hub.streams.streams import declared_streams
from backhaul_runtime.clock import SystemClock
from backhaul_runtime.jetstream import CLUSTER_NOT_AVAILABLE
from tests.hub.command_book import arrived
from tests.support.hub_layout import local_layout

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from backhaul_hub.nats.jetstream import Json

VID = Device("VID-001", "ab12", "", 0)
OTHER = Device("VID-002", "cd34", "", 0)


class Server:
    """A server's JetStream API, as far as it is asked for streams and durables on DOWN."""

    def __init__(self) -> None:
        self.streams: dict[str, Json] = {}
        """By name: its configuration."""
        self.durables: set[str] = set()
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """What happens while it is asked about a durable, once."""
        self.asked = 0
        """How often it was asked about one."""
        self.asked_again = asyncio.Event()

    async def consumer_info(self, stream: str, name: str) -> Json | None:
        self.asked += 1
        if self.asked > 1:
            self.asked_again.set()
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()
        known = [each for each in (VID, OTHER) if name in names_of(each)]
        assert stream == DOWN
        return down_consumers(known[0])[0] if known and name in self.durables else None

    async def delete_consumer(self, stream: str, name: str) -> None:
        self.durables.discard(name)

    async def stream_info(self, stream: str) -> Json | None:
        return {"config": self.streams[stream]} if stream in self.streams else None

    async def create_stream(self, config: Json) -> None:
        self.streams[config["name"]] = config

    async def request(
        self, verb: str, body: Any = None, *, api: str = "", timeout_s: float | None = None
    ) -> Json:
        if verb == "STREAM.NAMES":
            return {"streams": sorted(self.streams), "total": len(self.streams)}
        if verb.startswith(f"CONSUMER.CREATE.{DOWN}."):
            self.durables.add(verb.rpartition(".")[2])
        if verb == f"CONSUMER.NAMES.{DOWN}":
            return {"consumers": sorted(self.durables), "total": len(self.durables)}
        return {}


def names_of(device: Device) -> set[str]:
    return {each["config"]["name"] for each in down_consumers(device)}


class Scene:
    """A control plane that is not running, a server and a hub.db to try its steps on."""

    def __init__(self, directory: Path) -> None:
        create_hub(directory, local_layout(4222, 7422))
        self.plane = ControlPlane(directory, load(directory), SystemClock())
        self.server = Server()
        self.known: dict[str, Device] = {}

    async def reload(self) -> None:
        self.plane.ground.api, self.plane.ground.registry = (
            cast("Any", self.server),
            cast("Any", self),
        )
        await self.plane.fleet.learn()


@pytest.fixture
def scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    async def known(registry: Any) -> dict[str, Device]:
        return dict(registry.known)

    monkeypatch.setattr("backhaul_hub.control.fleet.read_devices", known)
    return Scene(tmp_path / "hub")


async def test_what_is_learnt_while_it_learns_is_not_taken_back(scene: Scene) -> None:
    """As where an operator gives a node streams of its own while a vehicle is enrolled."""
    changed = replace(VID, nodes=("battery",))
    learning: list[asyncio.Task[None]] = []

    async def changes() -> None:
        scene.known = {VID.id: changed}
        learning.append(asyncio.create_task(scene.reload()))
        for _ in range(100):
            await asyncio.sleep(0)

    scene.known, scene.server.meanwhile = {VID.id: VID}, changes
    await scene.reload()
    await asyncio.gather(*learning)
    assert scene.plane.fleet.devices.known() == {VID.id: changed}
    assert scene.server.durables == names_of(changed)


async def test_who_could_not_be_written_to_can_be_when_the_hub_learns_again(scene: Scene) -> None:
    """As where a cluster has no leader: who asked the hub to learn asks again."""

    async def has_no_leader() -> None:
        raise JetStreamError("CONSUMER.INFO", CLUSTER_NOT_AVAILABLE, "")

    scene.known, scene.server.meanwhile = {VID.id: VID, OTHER.id: OTHER}, has_no_leader
    await scene.reload()
    assert scene.server.durables == names_of(OTHER)
    await scene.reload()
    assert scene.server.durables == names_of(VID) | names_of(OTHER)


async def test_durables_are_asked_for_many_at_a_time(scene: Scene) -> None:
    """A control plane that starts asks for those of its whole fleet before it is ready."""

    async def another_is_asked_for() -> None:
        async with asyncio.timeout(30):
            await scene.server.asked_again.wait()

    scene.known, scene.server.meanwhile = {VID.id: VID, OTHER.id: OTHER}, another_is_asked_for
    await scene.reload()
    assert scene.server.durables == names_of(VID) | names_of(OTHER)


async def test_a_stream_that_is_made_anew_gets_what_belongs_to_it_though_it_takes_two_tries(
    scene: Scene,
) -> None:
    async def is_restarted() -> None:
        raise HubError("no answer")

    scene.known = {VID.id: VID, OTHER.id: OTHER}
    await scene.reload()
    declared = {each["name"]: each for each in declared_streams(scene.plane.ground.config)}
    del declared[DOWN]
    scene.server.streams = declared
    scene.server.durables, scene.server.meanwhile = set(), is_restarted
    nothing: Any = SimpleNamespace(links={})
    scene.plane.gate.leafs = scene.plane.streams.down = nothing
    watch = scene.plane.streams
    with pytest.raises(HubError):
        await watch.remake_deleted()
    await watch.remake_deleted()
    assert scene.server.durables == names_of(VID) | names_of(OTHER)


async def test_commands_hear_whose_link_is_up(scene: Scene) -> None:
    """What is sent to a vehicle that was never there is certain to have expired."""
    scene.known = {VID.id: VID}
    await scene.reload()
    book = scene.plane.commands.book
    for link, code in (
        (scene.plane.fleet.link_up, ErrorCode.UNHEARD),
        (scene.plane.fleet.link_down, ErrorCode.AWAY),
    ):
        link(VID.id)
        command = arrived(b'{"deadline_s": 1}')
        book.add(command)
        assert book.expire(command.deadline_ns) == [command]
        assert command.told()["code"] == code
        book.close(command)


@pytest.mark.parametrize(
    "note",
    [
        lambda plane: plane.fleet.link_up(VID.id),
        lambda plane: plane.fleet.source_set_up(VID.id),
        lambda plane: plane.fleet.stands_still(VID.id, 7, {"bulk": 3}),
    ],
    ids=["link up", "reset", "stands still"],
)
async def test_a_device_is_told_again_while_its_link_is_up(
    scene: Scene, note: Callable[[ControlPlane], None]
) -> None:
    scene.known = {VID.id: VID}
    await scene.reload()
    assert scene.plane.fleet.set_ups.look() is None
    note(scene.plane)
    assert scene.plane.fleet.set_ups.look() is not None
    scene.plane.fleet.link_down(VID.id)
    assert scene.plane.fleet.set_ups.look() is None
