"""Room for artifacts: promised once, looked at while it fills, and never all of it one program's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from backhaul_agent.artifacts import room as artifact_room
from backhaul_agent.artifacts.jobs import FileState
from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.artifacts.service import ArtifactService
from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.config import ArtifactsConfig, Config, DeviceConfig
from backhaul_agent.errors import ArtifactError, Code, RefusedError
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_codec.protocol import blobs
from backhaul_codec.state.merge import Heads
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from pathlib import Path

MIB = 1 << 20


class Disk:
    """A disk of so many bytes, of which a directory takes some and others the rest."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.others = 0

    def free(self, directory: Path) -> int:
        files = [*directory.iterdir(), *(directory / ".work").iterdir()]
        return (
            self.size - self.others - sum(each.stat().st_size for each in files if each.is_file())
        )


class Agent:
    """The agent's end of it, with a real directory and no hub."""

    def __init__(self, directory: Path, **limits: Any) -> None:
        self.disk = Disk(100 * MIB)
        self.clock = FakeClock()
        wanted = ArtifactsConfig(dir=str(directory), free_bytes_min=10 * MIB, **limits)
        config = Config(DeviceConfig("VID-001", "t"), artifacts=wanted)
        self.store = ArtifactStore(config.artifacts, self.disk.free)
        self.store.prepare()
        keeper: Any = SimpleNamespace(heads=Heads())
        nobody: Any = None
        self.artifacts = Artifacts(
            config, self.clock, self.store, keeper, UplinkState(), nobody, "boot"
        )
        self.artifacts.prepared.set()
        self.service = ArtifactService(self.artifacts)

    async def ask(self, what: str, body: dict[str, Any] | bytes, program: str = "") -> Any:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self.service._answer(what.split("."), data, program)

    async def put(self, size: int, program: str = "", name: str = "can.log") -> str:
        return str((await self.ask("put", {"name": name, "bytes": size}, program))["id"])

    async def whole(self, size: int, program: str = "", name: str = "can.log") -> str:
        number = await self.put(size, program, name)
        await self.ask(f"write.{number}.0", bytes(size), program)
        await self.ask("end", {"id": number}, program)
        return number


async def test_room_is_promised_once(tmp_path: Path) -> None:
    """Four were told that they have room, and filled the disk together."""
    agent = Agent(tmp_path)
    first = await agent.put(50 * MIB, "a")
    with pytest.raises(ArtifactError, match="52428800 bytes of it are promised") as refused:
        await agent.put(50 * MIB, "b")
    assert refused.value.code == blobs.FULL
    await agent.ask(f"write.{first}.0", bytes(MIB))
    await agent.put(40 * MIB, "b")
    assert agent.artifacts.status()["promised_bytes"] == 89 * MIB
    assert agent.artifacts.room.refused == {"room": 1, "busy": 0}


async def test_a_file_that_comes_and_one_that_is_handed_over_share_the_room(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    job = agent.artifacts.get("maps.db")
    job.digest, job.size, job.state = b"d" * 32, 60 * MIB, FileState.MOVING
    part = await agent.artifacts._open_part(job)
    with pytest.raises(ArtifactError, match="are promised"):
        await agent.put(40 * MIB)
    part.close()
    agent.artifacts.room.release(agent.store.part(job.digest))
    await agent.put(40 * MIB)


async def test_a_disk_that_others_fill_meanwhile_is_noticed_while_writing(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    number = await agent.put(20 * MIB)
    await agent.ask(f"write.{number}.0", bytes(MIB))
    agent.disk.others = 89 * MIB
    with pytest.raises(ArtifactError, match="no room for 1048576 bytes") as refused:
        await agent.ask(f"write.{number}.{MIB}", bytes(MIB))
    assert refused.value.code == blobs.FULL
    # What was half here makes way: the ledger needs the room.
    assert not agent.store.upload(number).exists()
    assert agent.artifacts.status()["promised_bytes"] == 0
    with pytest.raises(RefusedError) as gone:
        await agent.ask("end", {"id": number})
    assert gone.value.code == Code.NO_SUCH_POINT


async def test_no_program_takes_all_the_room(tmp_path: Path) -> None:
    agent = Agent(tmp_path, bytes_max=40 * MIB)
    for _ in range(3):
        await agent.whole(10 * MIB, "greedy")
    with pytest.raises(ArtifactError, match="three quarters"):
        await agent.put(MIB, "greedy")
    await agent.whole(9 * MIB, "modest")


async def test_no_program_takes_all_the_places(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    for _ in range(artifact_room.UPLOADS_OF_ONE_MAX):
        await agent.whole(1, "greedy")
    with pytest.raises(RefusedError, match="files of yours wait to be sent") as refused:
        await agent.put(1, "greedy")
    assert refused.value.code == Code.BUSY
    assert agent.artifacts.room.refused == {"room": 0, "busy": 1}
    await agent.whole(1, "modest")


async def test_what_a_program_hands_over_makes_way_for_no_other_programs(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    number = await agent.put(2, "modest")
    for _ in range(20):
        await agent.put(1, "greedy")
    owners = [each.program for each in agent.service._spools.values()]
    assert sorted(owners) == ["greedy"] * artifact_room.SPOOLS_OF_ONE_MAX + ["modest"]
    await agent.ask(f"write.{number}.0", b"ab")
    await agent.ask("end", {"id": number})


async def test_a_promise_that_nobody_uses_ends(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    number = await agent.put(60 * MIB, "a")
    agent.clock.advance(artifact_room.IDLE_S_MAX + 1)
    await agent.put(60 * MIB, "b")
    assert not agent.store.upload(number).exists()


async def test_what_a_program_left_half_handed_over_makes_way_for_a_file_that_comes(
    tmp_path: Path,
) -> None:
    agent = Agent(tmp_path)
    await agent.put(60 * MIB)  # whose program is gone
    job = agent.artifacts.get("maps.db")
    job.digest, job.size, job.state = b"d" * 32, 60 * MIB, FileState.MOVING
    with pytest.raises(ArtifactError, match="are promised"):
        await agent.artifacts._open_part(job)
    agent.clock.advance(artifact_room.IDLE_S_MAX + 1)
    part = await agent.artifacts._open_part(job)
    part.close()
