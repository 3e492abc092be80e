"""Acting on rotations: nothing is signed that hub.db does not have, and what fails halfway goes on."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from backhaul_codec.protocol.rotation import prove_key, read_wish
from backhaul_codec.protocol.words import KeyWord
from backhaul_hub.access.key_rotations import rotations
from backhaul_hub.access.keys import read_keys
from backhaul_hub.access.revocations import revocations
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import rotation_keeper
from backhaul_hub.enrol.add_device import DeviceSettings
from backhaul_hub.enrol.rotation_keeper import RotationKeeper
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jwt import body_of
from tests.hub.enrolling_hub import KEY, OTHER, Hub
from tests.support.hub_acts import begin_rotation, change_nodes, create_device
from tests.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from backhaul_hub.device import Device
    from backhaul_hub.nats.jetstream import JetStreamApi

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
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        """What happens while a wish is being told, once."""
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
        if self.meanwhile is not None:
            happens, self.meanwhile = self.meanwhile, None
            await happens()

    async def hears_a_key(self) -> None:
        """Have it hear a key, which is not stored yet."""
        id_ = self.keeper.rotations[VID].id
        proof = prove_key(OTHER, VID, id_)
        said: Any = Said(KeyWord(id_, "made", OTHER.public_key, proof, ""))
        self.keeper.on_message(said, is_new=True)

    def hears_that_it_is_written(self) -> None:
        """Have it hear that the vehicle has written the login, which is not stored yet."""
        said: Any = Said(KeyWord(self.keeper.rotations[VID].id, "written", "", "", ""))
        self.keeper.on_message(said, is_new=True)

    async def has_signed(self) -> None:
        """Have it hear and store a key, and tell the login that it signed."""
        await self.hears_a_key()
        await self.stored()
        await until(lambda: len(self.told) == 2)

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
    await scene.has_signed()
    assert body_of(scene.told[1].jwt)["sub"] == OTHER.public_key


async def test_a_wish_is_said_again_to_who_comes_back_with_the_old_key(scene: Scene) -> None:
    scene.keeper.connected(VID, KEY.public_key)
    await until(lambda: len(scene.told) == 2)
    assert scene.told[1] == scene.told[0]
    await scene.hears_a_key()
    await scene.stored()
    await until(lambda: len(scene.told) == 3)
    scene.keeper.connected(VID, KEY.public_key)
    await until(lambda: len(scene.told) == 4)
    assert body_of(scene.told[3].jwt)["sub"] == OTHER.public_key


async def test_one_whose_key_is_signed_goes_on_where_it_is_begun_once_more(scene: Scene) -> None:
    await scene.hears_a_key()
    await scene.stored()
    found, is_new = await begin_rotation(scene.hub.directory, scene.hub.clock, VID)
    assert (found.id, found.state, is_new) == (scene.keeper.rotations[VID].id, "signed", False)


async def test_who_comes_back_while_it_is_told_is_told_again(scene: Scene) -> None:
    async def back() -> None:
        scene.keeper.connected(VID, KEY.public_key)

    scene.meanwhile = back
    await back()
    await until(lambda: len(scene.told) == 3)
    assert scene.told[2] == scene.told[1] == scene.told[0]


async def test_what_answers_a_wish_before_the_hub_has_noted_it_stands(scene: Scene) -> None:
    async def answers() -> None:
        await scene.hears_a_key()
        await scene.stored()

    scene.meanwhile = answers
    scene.keeper.connected(VID, KEY.public_key)
    await until(lambda: len(scene.told) == 3)
    assert body_of(scene.told[2].jwt)["sub"] == OTHER.public_key


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


async def test_a_device_that_is_revoked_is_shown_to_rotate_no_more(scene: Scene) -> None:
    await scene.hub.revoke(VID)
    await scene.keeper.look(scene.registry)
    assert not scene.keeper.rotations


async def test_a_device_may_be_revoked_while_leafs_are_cut_at_the_start(scene: Scene) -> None:
    await scene.has_signed()
    cut: list[str] = []

    async def is_revoked_meanwhile(device: str) -> None:
        await scene.hub.revoke(device)
        await scene.keeper.look(scene.registry)
        cut.append(device)

    await scene.keeper._have_dialled(is_revoked_meanwhile)
    assert cut == [VID]
    assert not scene.keeper.rotations


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


async def test_a_login_that_comes_before_the_word_of_it_ends_the_rotation_for_good(
    scene: Scene,
) -> None:
    await scene.has_signed()

    async def hears_it_while_the_end_is_about_to_be_stored() -> tuple[list[Any], None]:
        scene.keeper.connected(VID, OTHER.public_key)
        for _ in range(100):
            await asyncio.sleep(0)
        scene.hears_that_it_is_written()
        return [], None

    await scene.registry.write_decided(hears_it_while_the_end_is_about_to_be_stored)
    await until(lambda: scene.learnt == 1)
    await scene.stored()
    assert (await rotations(scene.registry))[VID].state == "done"
    assert scene.keeper.rotations[VID].state == "done"


async def test_what_was_heard_before_the_login_and_is_stored_after_it_changes_nothing(
    scene: Scene,
) -> None:
    await scene.has_signed()
    scene.hears_that_it_is_written()
    changes = scene.keeper.take_changes()  # the reader has begun to store them
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: scene.learnt == 1)
    await scene.registry.write(changes)
    scene.keeper.stored()
    await until(lambda: len(scene.told) == 3)
    assert scene.told[2].done
    assert (await rotations(scene.registry))[VID].state == "done"


async def test_the_key_a_device_has_is_never_revoked(scene: Scene) -> None:
    """As where hub.db says of a rotation that it goes on, and of the device that it is over."""
    await scene.has_signed()
    row = (OTHER.public_key, VID)
    await scene.registry.write([RowChange("UPDATE device SET public_key = ? WHERE id = ?", [row])])
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: scene.learnt == 1)
    assert not await revocations(scene.registry)


async def test_a_login_with_the_key_of_a_rotation_given_up_a_moment_ago_revokes_nothing(
    scene: Scene,
) -> None:
    """The command has revoked the new key, and its word to the control plane is still on the way."""
    await scene.has_signed()
    await begin_rotation(scene.hub.directory, scene.hub.clock, VID, again=True)
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: not scene.keeper._logins)
    assert [each.public_key for each in await revocations(scene.registry)] == [OTHER.public_key]
    assert (await scene.hub.devices())[VID].public_key == KEY.public_key


async def test_nodes_that_were_given_a_moment_ago_stay_in_the_document(scene: Scene) -> None:
    await scene.has_signed()
    await change_nodes(scene.hub.directory, scene.hub.clock, VID, ["gps"])
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: scene.learnt == 1)
    document = scene.hub.documents.read(VID)
    assert (document.nodes, body_of(document.jwt)["sub"]) == (("gps",), OTHER.public_key)


async def test_a_document_that_cannot_be_written_does_not_keep_the_old_key_in(scene: Scene) -> None:
    await scene.hears_a_key()
    await scene.stored()
    scene.hub.documents.remove(VID)
    scene.keeper.connected(VID, OTHER.public_key)
    await until(lambda: scene.learnt == 1)
    assert scene.devices[VID].public_key == OTHER.public_key
