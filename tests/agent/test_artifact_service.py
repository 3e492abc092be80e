"""What programs are told about files while an agent that was just started makes ready."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.artifacts import manager as artifacts_module
from backhaul_agent.artifacts import service as artifact_service
from backhaul_agent.artifacts.manager import Artifacts
from backhaul_agent.artifacts.service import ArtifactService
from backhaul_agent.artifacts.store import ArtifactStore, Waiting
from backhaul_agent.config import ArtifactsConfig, Config, DeviceConfig
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.leaf.link_state import UplinkState
from tests.support.agent_clock import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

NO_HEADS: Any = None


class SlowStore(ArtifactStore):
    """Its directory is on a disk that takes its time."""

    def __init__(self, directory: Path) -> None:
        super().__init__(ArtifactsConfig(dir=str(directory)))
        self.answers = threading.Event()

    def prepare(self) -> dict[str, Waiting]:
        self.answers.wait(60)
        return super().prepare()


class BadStore(ArtifactStore):
    """Its directory is on a disk that is broken."""

    tried = 0

    def prepare(self) -> dict[str, Waiting]:
        self.tried += 1
        raise OSError("Input/output error")


def artifacts_on(store: ArtifactStore) -> Artifacts:
    async def write(_: object) -> None:
        """Nobody looks at slots here."""

    config = Config(device=DeviceConfig(id="VID-001", token="t"))
    return Artifacts(config, FakeClock(), store, NO_HEADS, UplinkState(), write, "boot")


async def test_who_asks_before_the_directory_is_ready_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_service, "PREPARED_S_MAX", 60.0)
    store = SlowStore(tmp_path / "artifacts")
    artifacts = artifacts_on(store)
    preparing = asyncio.create_task(artifacts._prepare())
    asking = asyncio.create_task(ArtifactService(artifacts)._answer(["list"], b""))
    for _ in range(10):
        await asyncio.sleep(0)
    store.answers.set()
    assert (await asking)["files"] == []
    await preparing


async def test_a_visit_is_held_until_it_is_known_whether_a_file_wants_it(tmp_path: Path) -> None:
    store = SlowStore(tmp_path / "artifacts")
    artifacts = artifacts_on(store)
    preparing = asyncio.create_task(artifacts._prepare())
    await asyncio.sleep(0)
    assert artifacts.moving == 0
    store.answers.set()
    await preparing
    assert artifacts.moving is None


async def test_a_directory_that_does_not_get_ready_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifact_service, "PREPARED_S_MAX", 0.01)
    artifacts = artifacts_on(SlowStore(tmp_path / "artifacts"))
    with pytest.raises(RefusedError, match="not ready") as caught:
        await ArtifactService(artifacts)._answer(["list"], b"")
    assert caught.value.code == Code.BUSY


async def test_nobody_waits_for_a_directory_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Programs are answered one after another: each would wait for all before it."""
    monkeypatch.setattr(artifact_service, "PREPARED_S_MAX", 3600.0)
    monkeypatch.setattr(artifacts_module, "PREPARE_RETRY_S", 0.0)
    store = BadStore(ArtifactsConfig(dir=str(tmp_path / "artifacts")))
    artifacts = artifacts_on(store)
    preparing = asyncio.create_task(artifacts._prepare())
    try:
        await until(lambda: store.tried > 1)  # so it was heard of the first time
        assert artifacts.moving is None, "it holds no visit"
        async with asyncio.timeout(60):
            with pytest.raises(RefusedError, match="not ready"):
                await ArtifactService(artifacts)._answer(["list"], b"")
    finally:
        preparing.cancel()
        await asyncio.wait([preparing])
