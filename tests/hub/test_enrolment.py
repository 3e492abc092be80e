"""A token is used up once, by one key; a repeat by that key is answered alike, all else is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from backhaul_codec.protocol.enrolment import EnrolmentRefused, Request
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.rules import Accept, Enrolment, Repeat, decide

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from backhaul_hub.db.change import RowChange
    from backhaul_hub.enrol.rules import Decision

S = 1_000_000_000
NOW = 1_700_000_000 * S
OPEN = Enrolment("0" * 24, "VID-001", "ab" * 12, NOW, NOW + 86_400 * S, "{}")
USED = replace(OPEN, public_key="U1", used_ns=NOW + S)
BY_U1 = Device("VID-001", OPEN.device_token, "U1", NOW)


def asked(key: str = "U1") -> Request:
    return Request(token=OPEN.id, public_key=key, proof="")


def code_of(
    enrolment: Enrolment | None,
    known: Device | None = None,
    *,
    key: str = "U1",
    spent: Sequence[str] = (),
    now_ns: int = NOW + 2 * S,
) -> str:
    decision = decide(asked(key), enrolment, known, spent, now_ns)
    assert isinstance(decision, EnrolmentRefused), decision
    return decision.code


def test_the_first_key_that_asks_is_accepted() -> None:
    assert decide(asked(), OPEN, None, (), NOW + S) == Accept()


def test_the_same_key_is_answered_again_also_when_the_token_has_expired() -> None:
    for now_ns in (NOW + 2 * S, OPEN.expires_ns + S):
        assert decide(asked(), USED, BY_U1, (), now_ns) == Repeat()


def test_the_key_that_was_put_in_its_place_since_is_answered_too() -> None:
    standing = replace(BY_U1, public_key="U2")
    assert decide(asked("U2"), USED, standing, ["U1"], NOW) == Repeat()
    assert code_of(USED, standing, key="U1", spent=["U1"]) == "old_key"


def test_another_key_is_refused() -> None:
    assert code_of(USED, BY_U1, key="U2") == "used"
    assert code_of(USED, None, key="U2") == "used"


def test_a_token_of_an_earlier_enrolment_is_not_answered_for_a_later_one() -> None:
    later = Device("VID-001", "cd" * 12, "U1", NOW)
    assert code_of(USED, later, key="U1") == "old_key"


@pytest.mark.parametrize(("why", "code"), [("revoked", "revoked"), ("replaced", "replaced")])
def test_a_void_token_is_refused_with_why(why: str, code: str) -> None:
    for enrolment in (OPEN, USED):
        void = replace(enrolment, voided_ns=NOW + S, why_voided=why)
        assert code_of(void, BY_U1) == code


def test_an_expired_token_is_refused() -> None:
    assert code_of(OPEN, now_ns=OPEN.expires_ns) == "expired"
    assert decide(asked(), OPEN, None, (), OPEN.expires_ns - 1) == Accept()


def test_a_token_that_the_hub_does_not_know_is_refused() -> None:
    assert code_of(None) == "unknown"


def test_a_device_that_was_enrolled_meanwhile_is_not_enrolled_over() -> None:
    assert code_of(OPEN, Device("VID-001", "cd" * 12, "U9", NOW)) == "enrolled"


def test_a_revoked_device_may_be_enrolled_anew_but_by_no_key_of_before() -> None:
    revoked = Device("VID-001", "cd" * 12, "U9", NOW, revoked_ns=NOW)
    assert decide(asked("U1"), OPEN, revoked, ["U9"], NOW) == Accept()
    assert code_of(OPEN, revoked, key="U9", spent=["U9"]) == "old_key"


async def test_a_new_token_takes_the_unused_ones_back(tmp_path: Path) -> None:
    newer = replace(OPEN, id="1" * 24, device_token="cd" * 12, made_ns=NOW + S)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write(enrolment_rows.add(OPEN))
        assert await enrolment_rows.find(registry, OPEN.id) == OPEN
        await registry.write(enrolment_rows.add(newer))
        first, second = await enrolment_rows.of_device(registry, "VID-001")
        assert (first.state(NOW), first.why_voided, second) == ("voided", "replaced", newer)
        assert await enrolment_rows.find(registry, "2" * 24) is None


async def test_of_two_that_ask_at_once_one_is_accepted(tmp_path: Path) -> None:
    decisions = []

    async def use(registry: Registry, key: str) -> None:
        async def decided() -> tuple[list[RowChange], Decision]:
            found = await enrolment_rows.find(registry, OPEN.id)
            decision = decide(asked(key), found, None, (), NOW + S)
            if decision != Accept():
                return [], decision
            return [enrolment_rows.use(OPEN, key, NOW + S)], decision

        decisions.append(await registry.write_decided(decided))

    # Two programs: each with a connection of its own.
    async with (
        await Registry.open(tmp_path / "hub.db") as one,
        await Registry.open(tmp_path / "hub.db") as other,
    ):
        await one.write(enrolment_rows.add(OPEN))
        await asyncio.gather(use(one, "U1"), use(other, "U2"))
        found = await enrolment_rows.find(one, OPEN.id)
    assert found is not None
    assert found.state(NOW) == "used"
    assert decisions.count(Accept()) == 1
    assert {each.code for each in decisions if isinstance(each, EnrolmentRefused)} == {"used"}


async def test_revoking_takes_all_tokens_back_and_they_are_forgotten_in_time(
    tmp_path: Path,
) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write(enrolment_rows.add(USED))
        await registry.write(enrolment_rows.void_all("VID-001", NOW + 5 * S, "revoked"))
        (token,) = await enrolment_rows.of_device(registry, "VID-001")
        assert (token.state(NOW), token.voided_ns) == ("voided", NOW + 5 * S)
        end_ns = OPEN.expires_ns + enrolment_rows.KEPT_NS
        await registry.write([enrolment_rows.forget(end_ns)])
        assert len(await enrolment_rows.of_device(registry, "VID-001")) == 1
        await registry.write([enrolment_rows.forget(end_ns + 1)])
        assert await enrolment_rows.of_device(registry, "VID-001") == []
