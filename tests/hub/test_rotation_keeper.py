"""Acting on rotations: nothing is signed that hub.db does not have, and what fails halfway goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_codec.rotation import prove_key, read_wish
from backhaul_codec.words import KeyWord
from backhaul_hub import rotation_keeper
from backhaul_hub.enrol import DeviceSettings, create_device
from backhaul_hub.errors import HubError
from backhaul_hub.keys import read_keys
from backhaul_hub.nats_jwt import body_of
from backhaul_hub.registry import Registry
from backhaul_hub.revocations import revocations
from backhaul_hub.rotating import begin_rotation
from backhaul_hub.rotation_keeper import RotationKeeper
from backhaul_hub.rotations import rotations
from tests.support.waiting import until

from .test_enrolment_service import KEY, OTHER, Hub

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_hub.jetstream import JetStreamApi
    from backhaul_hub.registry import Device

VID, LATER = "VID-001", "VID-002"


class Said:
    """As much of a message of UP as the keeper looks at."""

    def __init__(self, word: KeyWord) -> None:
        self.word = word
        self.key = self
        self.device = VID


class Scene:
    """A hub whose vehicle is asked for another key, and the keeper that sees to it."""

    def __init__(self, directory: Path) -> None:
        self.hub = Hub(directory)
        self.registry: Registry
        self.told: list[Any] = []
        self.learnt = 0
        self.trouble: HubError | None = None
        self.devices: dict[str, Device] = {}
        keys = read_keys(directory)
        self.keeper = RotationKeeper(
            keys, self.hub.documents, self.hub.clock, lambda: self.devices, self._learn
        )

    async def _learn(self) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.devices = await self.hub.devices()
        self.learnt += 1

    async def publish(self, subject: str, payload: bytes) -> None:
        assert subject.startswith(("in.VID-001.", "in.VID-002."))
        self.told.append(read_wish(payload))

    async def hears_a_key(self) -> None:
        """Have it hear a key, which is not stored yet."""
        id_ = self.keeper.rotations[VID].id
        proof = prove_key(OTHER, VID, id_)
        said: Any = Said(KeyWord(id_, "made", OTHER.public_key, proof, ""))
        self.keeper.on_message(said, is_new=True)

    async def stored(self) -> None:
        """Store what it heard, as the reader of UP does."""
        await self.registry.write(self.keeper.take_changes())
        self.keeper.stored()


async def _cut(device: str) -> None:
    assert device == VID


@pytest.fixture
async def scene(tmp_path: Path) -> AsyncIterator[Scene]:
    """A rotation of which the vehicle was told."""
    scene = Scene(tmp_path / "hub")
    hub, api = scene.hub, cast("JetStreamApi", scene)
    await hub.ask(await hub.token())
    await create_device(hub.directory, hub.config, hub.clock, LATER, DeviceSettings())
    scene.devices = await hub.devices()
    await begin_rotation(hub.directory, hub.clock, VID)
    async with await Registry.open(hub.directory / "hub.db") as scene.registry:
        await scene.keeper.look(scene.registry)
        acting = asyncio.create_task(scene.keeper.run(api, scene.registry, _cut))
        try:
            await until(lambda: len(scene.told) == 1)
            yield scene
        finally:
            acting.cancel()
            await asyncio.wait([acting])


async def test_a_login_is_signed_for_the_key_that_is_stored(scene: Scene) -> None:
    await scene.hears_a_key()
    await scene.stored()
    await until(lambda: len(scene.told) == 2)
    assert body_of(scene.told[1].jwt)["sub"] == OTHER.public_key


async def test_no_login_is_signed_before_its_key_is_stored(scene: Scene) -> None:
    await scene.hears_a_key()
    changes = scene.keeper.take_changes()  # the reader has begun to store them
    await begin_rotation(scene.hub.directory, scene.hub.clock, LATER)
    await scene.keeper.look(scene.registry)
    await until(lambda: LATER in scene.keeper.rotations and len(scene.told) == 2)
    assert scene.told[1].jwt == "", "the other device is told, after whom this one would have been"
    await scene.registry.write(changes)
    scene.keeper.stored()
    await until(lambda: len(scene.told) == 3)
    assert body_of(scene.told[2].jwt)["sub"] == OTHER.public_key


async def test_of_a_device_revoked_a_moment_ago_no_key_is_signed_any_more(scene: Scene) -> None:
    """The command has written to hub.db, and its word to the control plane is still on the way."""
    await scene.hears_a_key()
    await scene.hub.revoke(VID)
    await scene.stored()
    await until(lambda: not scene.keeper.rotations)
    assert len(scene.told) == 1


async def test_of_a_rotation_that_was_begun_anew_a_moment_ago_no_key_is_signed(
    scene: Scene,
) -> None:
    await scene.hears_a_key()
    newer, _ = await begin_rotation(scene.hub.directory, scene.hub.clock, VID, again=True)
    await scene.stored()
    await until(lambda: len(scene.told) == 2)
    assert (scene.told[1].id, scene.told[1].jwt) == (newer.id, "")


async def test_what_is_done_is_learnt_once_the_servers_are_there_again(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rotation_keeper, "_RETRY_S", 0.01)
    await scene.hears_a_key()
    await scene.stored()
    scene.trouble = HubError("the server is away")
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: scene.keeper.rotations[VID].state == "done")
    scene.trouble = None
    await until(lambda: scene.learnt == 1)
    assert (await rotations(scene.registry))[VID].state == "done"
    assert [each.public_key for each in await revocations(scene.registry)] == [KEY.public_key]
    assert scene.devices[VID].public_key == OTHER.public_key
    assert body_of(scene.hub.documents.read(VID).jwt)["sub"] == OTHER.public_key


async def test_a_document_that_cannot_be_written_does_not_keep_the_old_key_in(scene: Scene) -> None:
    await scene.hears_a_key()
    await scene.stored()
    scene.hub.documents.remove(VID)
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: scene.learnt == 1)
    assert scene.devices[VID].public_key == OTHER.public_key
