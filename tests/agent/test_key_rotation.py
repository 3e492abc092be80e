"""Another key over the air, on the vehicle: killed at any write, asked twice, files that are lost."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from backhaul_agent.enrol import key_rotation
from backhaul_agent.enrol.key_rotation import KeyRotation, PendingKey, RotationStep, step
from backhaul_agent.ledger.rows import Inbound, Inward
from backhaul_codec import Opaque, decode
from backhaul_codec.protocol.credentials import Credentials, parse_credentials
from backhaul_codec.protocol.rotation import Wish, proves, write_wish
from tests.support.enrolment_tokens import unsigned_jwt, user_key
from tests.support.fatal_write import FatalWrite, Killed

if TYPE_CHECKING:
    from pathlib import Path

ID, LATER = "0" * 24, "1" * 24
OLD, NEW = user_key(1), user_key(2)
CREDS = Credentials(OLD.seed, OLD.public_key, unsigned_jwt(OLD)).text()
NEW_CREDS = Credentials(NEW.seed, NEW.public_key, unsigned_jwt(NEW)).text()
ASKED, SIGNED, DONE = Wish(ID), Wish(ID, jwt=unsigned_jwt(NEW)), Wish(ID, done=True)
KEPT = PendingKey(ID, NEW.seed)


def decided(wish: Wish, kept: PendingKey | None, creds: str = CREDS) -> RotationStep:
    return step(wish, kept, creds, "VID-001", lambda: NEW)


def test_asked_it_makes_a_key_and_keeps_it_before_it_says_so() -> None:
    to_do = decided(ASKED, None)
    assert to_do.keep == KEPT
    assert to_do.say is not None
    assert to_do.say["public_key"] == NEW.public_key
    assert proves(to_do.say["proof"], NEW.public_key, "VID-001", ID)
    assert NEW.seed not in json.dumps(to_do.say) + repr(to_do)


def test_asked_again_it_says_the_same_key() -> None:
    assert decided(ASKED, KEPT) == RotationStep(say=decided(ASKED, None).say)


def test_asked_for_a_later_rotation_it_makes_another_key() -> None:
    to_do = decided(Wish(LATER), KEPT)
    assert to_do.keep is not None
    assert to_do.keep.id == LATER


def test_a_login_for_the_kept_key_is_written() -> None:
    assert decided(SIGNED, KEPT) == RotationStep(
        creds=NEW_CREDS, say={"id": ID, "state": "written"}
    )


def test_a_login_that_is_written_already_is_said_to_be() -> None:
    assert decided(SIGNED, None, NEW_CREDS).say == {"id": ID, "state": "written"}


@pytest.mark.parametrize(
    "kept", [None, PendingKey(LATER, NEW.seed), PendingKey(ID, user_key(3).seed)]
)
def test_a_login_for_a_key_that_is_lost_is_not_written(kept: PendingKey | None) -> None:
    to_do = decided(SIGNED, kept)
    assert (to_do.creds, to_do.say and to_do.say["state"]) == ("", "failed")


def test_what_is_done_is_forgotten() -> None:
    assert decided(DONE, KEPT) == RotationStep(forget=True)
    assert decided(DONE, None) == RotationStep()
    assert decided(DONE, PendingKey(LATER, NEW.seed)) == RotationStep()


class Vehicle:
    def __init__(self, directory: Path) -> None:
        self.creds = directory / "device.creds"
        self.kept = directory / "key-rotation.json"
        self.rotation = KeyRotation("VID-001", self.kept, self.creds, lambda: 1_700_000_000 * 10**9)

    def told(self, wish: Wish, *, fresh: bool = True) -> list[dict[str, Any]]:
        changes = Inward()
        self.rotation.on_message(Inbound(["s", "key"], write_wish(wish), fresh), changes)
        said = []
        for message in changes.messages:
            assert message.subject == "e.key"
            value = decode(message.body, node="", type="key", key="").points[0].value
            assert isinstance(value, Opaque)
            said.append(json.loads(value.data))
        return said

    def key(self) -> str:
        return parse_credentials(self.creds.read_text()).public_key


@pytest.fixture
def vehicle(tmp_path: Path) -> Vehicle:
    vehicle = Vehicle(tmp_path)
    vehicle.creds.write_text(CREDS)
    return vehicle


def jwt_for(public_key: str) -> str:
    return unsigned_jwt(Credentials("", public_key))


def test_the_old_login_stays_until_the_hub_has_signed_and_beside_it_then(vehicle: Vehicle) -> None:
    (said,) = vehicle.told(ASKED)
    assert vehicle.key() == OLD.public_key
    assert vehicle.kept.stat().st_mode & 0o777 == 0o600
    (written,) = vehicle.told(Wish(ID, jwt=jwt_for(said["public_key"])))
    assert written == {"id": ID, "state": "written"}
    assert vehicle.key() == said["public_key"]
    assert vehicle.creds.stat().st_mode & 0o777 == 0o600
    assert vehicle.creds.with_name("device.creds.before").read_text() == CREDS
    assert vehicle.told(DONE) == []
    assert not vehicle.kept.exists()


def test_killed_at_any_write_it_comes_to_the_same_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = FatalWrite()
    monkeypatch.setattr(key_rotation, "write_whole", write)

    def until_told(vehicle: Vehicle, wish: Wish) -> dict[str, Any]:
        # What was not committed is read again.
        try:
            (said,) = vehicle.told(wish)
        except Killed:
            (said,) = vehicle.told(wish)
        return said

    for fatal in range(1, 4):
        write.at(fatal)
        directory = tmp_path / str(fatal)
        directory.mkdir()
        vehicle = Vehicle(directory)
        vehicle.creds.write_text(CREDS)
        made = until_told(vehicle, ASKED)
        signed = Wish(ID, jwt=jwt_for(made["public_key"]))
        assert until_told(vehicle, signed)["state"] == "written"
        assert write.writes > fatal
        assert vehicle.key() == made["public_key"]


def test_a_disk_that_refuses_leaves_the_old_login_and_is_said(vehicle: Vehicle) -> None:
    (made,) = vehicle.told(ASKED)
    vehicle.creds.unlink()
    vehicle.creds.mkdir()
    (said,) = vehicle.told(Wish(ID, jwt=jwt_for(made["public_key"])))
    assert said["state"] == "failed"
    assert "directory" in said["why"]


def test_a_wish_that_is_read_again_leaves_a_login_that_was_made_since(vehicle: Vehicle) -> None:
    (made,) = vehicle.told(ASKED)
    signed = Wish(ID, jwt=jwt_for(made["public_key"]))
    vehicle.told(signed)
    # The vehicle is enrolled anew, and its leaf server started again: IN is read from its start.
    vehicle.creds.write_text(NEW_CREDS)
    assert vehicle.told(signed, fresh=False) == []
    assert vehicle.key() == NEW.public_key


def test_a_damaged_kept_key_is_made_anew(vehicle: Vehicle) -> None:
    vehicle.kept.write_text('{"id": "0')
    (said,) = vehicle.told(ASKED)
    kept = msgspec.json.decode(vehicle.kept.read_bytes(), type=PendingKey)
    assert said["state"] == "made"
    assert kept.id == ID


def test_garbage_is_refused(vehicle: Vehicle) -> None:
    with pytest.raises(ValueError, match="no wish"):
        vehicle.rotation.on_message(Inbound(["s", "key"], b"{}", True), Inward())
