"""Files between programs and the agent: two at a time, and a connection that ends in the middle."""

from __future__ import annotations

import asyncio
import hashlib
import os
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest

from backhaul_agent.artifacts.jobs import FileState
from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.artifacts.service import ArtifactService
from backhaul_agent.artifacts.store import ArtifactStore
from backhaul_agent.client.artifacts import ArtifactClient
from backhaul_agent.config import ArtifactsConfig, Config, DeviceConfig
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.leaf.link_state import UplinkState
from backhaul_codec.state.merge import Heads
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from backhaul_agent.artifacts.store import Waiting

PIECES = (b"1" * 100_000, b"2" * 100_000)  # more than a file buffers
WHOLE = b"".join(PIECES)
DIGEST = hashlib.sha256(WHOLE).hexdigest()


class Handing:
    """An agent that hands out a file of two pieces; `before` happens before each of them."""

    def __init__(self, before: Callable[[int], Awaitable[None]]) -> None:
        self._before = before
        self.nats = SimpleNamespace(request=self._request)

    async def ask(self, subject: str, _: bytes) -> dict[str, Any]:
        if subject.endswith(".done"):
            return {}
        return {"state": "ready", "digest": DIGEST, "bytes": len(WHOLE)}

    async def _request(self, subject: str, _: bytes, **_options: float) -> Any:
        offset = int(subject.rpartition(".")[2])
        number = 1 if offset else 0
        await self._before(number)
        return SimpleNamespace(headers=None, data=PIECES[number])


async def test_two_that_fetch_a_file_to_one_place_leave_it_whole(tmp_path: Path) -> None:
    target, begun, go_on = tmp_path / "maps.db", asyncio.Event(), asyncio.Event()
    fetching: list[asyncio.Task[Any]] = []

    async def hold(_: int) -> None:
        begun.set()
        await go_on.wait()

    async def have_another_begin(number: int) -> None:
        if number:
            other = ArtifactClient(cast("Any", Handing(hold)))
            fetching.append(asyncio.create_task(other.fetch("maps.db", target)))
            await begun.wait()

    await ArtifactClient(cast("Any", Handing(have_another_begin))).fetch("maps.db", target)
    assert target.read_bytes() == WHOLE
    go_on.set()
    await fetching[0]
    assert target.read_bytes() == WHOLE
    assert list(tmp_path.iterdir()) == [target]


async def test_what_a_program_left_that_was_killed_as_it_copied_goes_with_the_next(
    tmp_path: Path,
) -> None:
    target = tmp_path / "maps.db"
    left, another = tmp_path / ".maps.db.00c0ffee.part", tmp_path / ".maps.db.0badcafe.part"
    for path in (left, another):
        path.write_bytes(PIECES[0])
    os.utime(left, (1_000_000_000, 1_000_000_000))

    async def nothing(_: int) -> None:
        """Happens before a piece."""

    await ArtifactClient(cast("Any", Handing(nothing))).fetch("maps.db", target)
    assert sorted(tmp_path.iterdir()) == sorted([target, another])


class Store(ArtifactStore):
    """Keeps an upload once it may."""

    def __init__(self, config: ArtifactsConfig) -> None:
        super().__init__(config, free=lambda _: 1 << 40)
        self.keeping = False
        self.may_keep = threading.Event()

    def keep_upload(self, number: str, waiting: Waiting) -> None:
        self.keeping = True
        assert self.may_keep.wait(60)
        super().keep_upload(number, waiting)


class Agent:
    """The agent's end of it, with a real directory and no hub."""

    def __init__(self, directory: Path) -> None:
        config = Config(DeviceConfig("VID-001", "t"), artifacts=ArtifactsConfig(dir=str(directory)))
        self.store = Store(config.artifacts)
        self.store.prepare()
        keeper: Any = SimpleNamespace(heads=Heads())
        nobody: Any = None
        self.artifacts = Artifacts(
            config, FakeClock(), self.store, keeper, UplinkState(), nobody, "boot"
        )
        self.artifacts.prepared.set()
        self._service = ArtifactService(self.artifacts)

    async def ask(self, what: str, body: dict[str, Any] | bytes) -> Any:
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        return await self._service._answer(what.split("."), data)

    async def hand_over(self, name: str) -> str:
        number: str = (await self.ask("put", {"name": name, "bytes": len(WHOLE)}))["id"]
        await self.ask(f"write.{number}.0", WHOLE)
        return number


async def test_a_file_is_sent_whose_program_lost_its_connection_as_it_was_kept(
    tmp_path: Path,
) -> None:
    agent = Agent(tmp_path)
    number = await agent.hand_over("can.log")
    ending = asyncio.create_task(agent.ask("end", {"id": number}))
    await until(lambda: agent.store.keeping)
    ending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await ending
    agent.store.may_keep.set()
    path = agent.store.upload(number)
    await until(path.with_name(f"{path.name}.json").exists)
    await until(lambda: number in agent.artifacts.uploads, deadline_s=10)
    assert agent.artifacts.uploads[number].state is FileState.WAITING


async def test_a_file_that_another_program_is_done_with_is_fetched_anew(tmp_path: Path) -> None:
    agent = Agent(tmp_path)
    path = agent.store.fetched(bytes.fromhex(DIGEST))
    path.write_bytes(WHOLE)
    for name in ("maps.db", "maps-7.db"):
        job = agent.artifacts.get(name)
        job.digest, job.path, job.size = bytes.fromhex(DIGEST), path, len(WHOLE)
        job.ready()
    assert await agent.ask(f"read.{DIGEST}.0", b"") == WHOLE
    await agent.ask("done", {"name": "maps.db"})
    with pytest.raises(RefusedError) as refused:
        await agent.ask(f"read.{DIGEST}.0", b"")
    assert refused.value.code == Code.NO_SUCH_POINT
    assert (await agent.ask("get", {"name": "maps-7.db"}))["state"] == FileState.WAITING


@pytest.fixture
async def handed_over(tmp_path: Path) -> tuple[Agent, list[str]]:
    """An agent that was given twenty files of one name, one after another, and has sent none."""
    agent = Agent(tmp_path)
    agent.store.may_keep.set()
    numbers = []
    for _ in range(20):
        numbers.append(await agent.hand_over("can.log"))
        await agent.ask("end", {"id": numbers[-1]})
    return agent, numbers


async def test_an_older_file_of_a_name_is_not_sent_after_a_newer_one(
    handed_over: tuple[Agent, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    agent, numbers = handed_over
    nothing: Any = None

    async def send(*_: object) -> None:
        """Bring it to the hub."""

    monkeypatch.setattr(agent.artifacts.transfers, "send", send)
    other = await agent.hand_over("other.log")
    await agent.ask("end", {"id": other})
    job = agent.artifacts.uploads[numbers[7]]
    await agent.artifacts._send(nothing, job)
    waiting = [number for number, each in agent.artifacts.uploads.items() if each.open]
    assert waiting == [*numbers[8:], other]
    assert list(agent.store.prepare()) == waiting


async def test_files_are_sent_in_their_order_after_a_restart(
    handed_over: tuple[Agent, list[str]], tmp_path: Path
) -> None:
    _, numbers = handed_over
    assert list(Agent(tmp_path).store.prepare()) == numbers


async def test_a_file_that_was_given_up_is_not_stored(
    handed_over: tuple[Agent, list[str]],
) -> None:
    agent, numbers = handed_over

    async def ask(subject: str, body: bytes) -> Any:
        return await agent.ask(subject.removeprefix("agent.artifact."), body)

    program: Any = SimpleNamespace(ask=ask)
    await agent.ask("cancel", {"id": numbers[0]})
    with pytest.raises(RefusedError) as refused:
        await ArtifactClient(program).sent(numbers[0])
    assert refused.value.code == Code.CANCELLED
