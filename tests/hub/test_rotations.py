"""Another key for a device: every word may come twice, late, forged or never."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_codec.protocol.rotation import Wish, prove_key
from backhaul_codec.protocol.words import KeyWord
from backhaul_hub.access.key_rotations import (
    Rotation,
    begin,
    drop,
    heard,
    logged_in,
    put,
    rotations,
)
from backhaul_hub.cli.fleet import rotate
from backhaul_hub.db.store import Registry
from tests.support.enrolment_tokens import user_key

if TYPE_CHECKING:
    from pathlib import Path

ID = "0" * 24
OLD, NEW, OTHER = user_key(1), user_key(2), user_key(3)
ASKED = Rotation("VID-001", ID, "asked", 1, old_key=OLD.public_key, changed_ns=1)
SIGNED = replace(ASKED, state="signed", public_key=NEW.public_key, changed_ns=2)
WRITTEN = replace(SIGNED, state="written", changed_ns=3)
DONE = replace(SIGNED, state="done", changed_ns=4)
FAILED = replace(SIGNED, state="failed", why="no space")
SPENT = {OLD.public_key, OTHER.public_key}


def word(state: Any, key: Any = NEW, id_: str = ID, proof: str | None = None) -> KeyWord:
    if state != "made":
        return KeyWord(id_, state, "", "", "no space" if state == "failed" else "")
    proof = prove_key(key, "VID-001", ID) if proof is None else proof
    return KeyWord(id_, state, key.public_key, proof, "")


def test_the_way_to_another_key() -> None:
    assert heard(ASKED, word("made"), SPENT, 2) == SIGNED
    assert heard(SIGNED, word("written"), SPENT, 3) == WRITTEN
    assert logged_in(WRITTEN, NEW.public_key, 4) == DONE


def test_a_login_may_be_seen_before_the_word_that_it_is_written() -> None:
    assert logged_in(SIGNED, NEW.public_key, 4) == DONE


@pytest.mark.parametrize("rotation", [SIGNED, WRITTEN, DONE, FAILED, None])
def test_what_is_said_twice_changes_nothing(rotation: Rotation | None) -> None:
    assert heard(rotation, word("made"), SPENT, 9) is None


@pytest.mark.parametrize("rotation", [ASKED, WRITTEN, DONE, FAILED])
def test_a_login_is_written_only_where_one_was_signed(rotation: Rotation) -> None:
    assert heard(rotation, word("written"), SPENT, 9) is None


@pytest.mark.parametrize("rotation", [ASKED, SIGNED, WRITTEN])
def test_words_on_another_rotation_change_nothing(rotation: Rotation) -> None:
    for state in ("made", "written", "failed"):
        assert heard(rotation, word(state, id_="1" * 24), SPENT, 9) is None


@pytest.mark.parametrize("rotation", [ASKED, SIGNED, WRITTEN])
def test_a_vehicle_may_fail_and_its_old_key_stays(rotation: Rotation) -> None:
    after = heard(rotation, word("failed"), SPENT, 9)
    assert after is not None
    assert (after.state, after.why, after.under_way) == ("failed", "no space", False)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (word("made", proof="A" * 86), "without a proof"),
        (word("made", proof=prove_key(NEW, "VID-002", ID)), "without a proof"),
        (KeyWord(ID, "made", "garbage", "", ""), "without a proof"),
        (word("made", OTHER), "used before"),
        (word("made", OLD), "used before"),
    ],
)
def test_no_login_is_signed_for_a_key_that_is_not_proved_or_not_new(
    said: KeyWord, why: str
) -> None:
    after = heard(ASKED, said, SPENT, 9)
    assert after is not None
    assert (after.state, after.public_key) == ("failed", "")
    assert why in after.why


def test_two_keys_are_one_too_many() -> None:
    after = heard(SIGNED, word("made", user_key(4)), SPENT, 9)
    assert after is not None
    assert after.state == "failed"


def test_a_login_with_any_other_key_ends_nothing() -> None:
    for rotation in (ASKED, SIGNED, WRITTEN):
        assert logged_in(rotation, OLD.public_key, 9) is None
        assert logged_in(rotation, OTHER.public_key, 9) is None
    assert logged_in(DONE, NEW.public_key, 9) is None
    assert logged_in(None, NEW.public_key, 9) is None


def test_a_key_that_is_in_use_is_believed_whatever_the_vehicle_said() -> None:
    after = logged_in(FAILED, NEW.public_key, 4)
    assert after == DONE


def test_what_the_vehicle_is_told_in_each_state() -> None:
    assert ASKED.wish("jwt") == Wish(ID)
    assert SIGNED.wish("jwt") == WRITTEN.wish("jwt") == Wish(ID, jwt="jwt")
    assert DONE.wish("jwt") == FAILED.wish("jwt") == Wish(ID, done=True)


async def test_a_newer_rotation_is_not_overwritten_by_what_was_heard_of_an_older(
    tmp_path: Path,
) -> None:
    newer = replace(ASKED, id="1" * 24)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write([begin(ASKED)])
        await registry.write([put(SIGNED)])
        assert await rotations(registry) == {"VID-001": SIGNED}
        await registry.write([begin(newer)])
        await registry.write([put(WRITTEN)])
        assert await rotations(registry) == {"VID-001": newer}
        await registry.write([drop("VID-001")])
        assert await rotations(registry) == {}


@pytest.mark.parametrize(
    ("rotation", "warning"),
    [(ASKED, ""), (SIGNED, "may have the new login only"), (WRITTEN, "has the new login only")],
    ids=["asked", "signed", "written"],
)
def test_who_is_about_to_shut_a_vehicle_out_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rotation: Rotation, warning: str
) -> None:
    def found(*_: object) -> dict[str, object]:
        return {"rotation": asdict(rotation), "begun": False, "problem": None}

    monkeypatch.setattr(rotate, "act", found)
    monkeypatch.setattr(rotate, "log_to_stderr", lambda: None)
    told = CliRunner().invoke(rotate.rotate, ["VID-001", "--dir", str(tmp_path)]).output
    assert "To begin anew: --again" in told
    assert warning in told
    assert ("login only" in told) is bool(warning)
