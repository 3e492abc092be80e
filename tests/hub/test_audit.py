"""The audit log without a server: the chain, what an act is called, and names that go."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub import questions as q
from backhaul_hub.audit import rows
from backhaul_hub.audit.acts import act_of
from backhaul_hub.audit.entry import NONE, AuditChain, AuditedAct, AuditEntry, digest, written
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.erased import erased_people
from backhaul_hub.db.store import Registry
from backhaul_hub.erase.people import counted, erase_again, erase_person
from backhaul_hub.nats.nkey import new_key

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = [AuditEntry(number, "someone-1", "revoke", f"VID-{number:03}") for number in range(5)]


def messages() -> list[bytes]:
    before, found = NONE, []
    for entry in ENTRIES:
        found.append(written(before, [entry]))
        before = digest(found[-1])
    return found


def followed(bodies: dict[int, bytes]) -> AuditChain:
    chain = AuditChain()
    for seq, body in bodies.items():
        chain.take(seq, body)
    return chain


def test_a_chain_is_whole_as_it_was_written_and_tells_of_each_change() -> None:
    whole = dict(enumerate(messages(), 1))
    assert followed(whole).breaches == []
    assert followed(whole).digest == digest(whole[5])
    without = {seq: body for seq, body in whole.items() if seq != 3}
    assert followed(without).breaches == [(3, "missing")]
    changed = whole | {
        3: written(digest(whole[2]), [AuditEntry(3, "someone-2", "revoke", "VID-002")])
    }
    assert followed(changed).breaches == [(4, "changed")]
    assert followed(whole | {2: b"garbage"}).breaches == [(2, "unreadable"), (3, "changed")]
    again = dict(enumerate([*messages(), written(NONE, ENTRIES)], 1))
    assert followed(again).breaches == [(6, "changed")]


@pytest.mark.parametrize(
    ("service", "question", "wanted"),
    [
        ("revoke", q.OneDevice("VID-001"), AuditedAct("ann", "revoke", "VID-001")),
        (
            "set",
            q.Set("VID-001", "gps", [q.PointToWrite("rate", value="secret")]),
            AuditedAct("ann", "set", "VID-001", "gps.rate"),
        ),
        ("user-rm", q.UserRemove("bob"), AuditedAct("ann", "user-rm", "bob", person=True)),
        ("erase", q.Erase(person="bob"), AuditedAct("ann", "erase", "a person")),
        ("erase-plan", q.Erase(device="VID-001"), None),
        ("tree", q.Nothing(), None),
    ],
)
def test_an_act_names_what_it_is_about_and_no_value(
    service: str, question: object, wanted: AuditedAct | None
) -> None:
    assert act_of(service, "ann", question, "") == wanted


async def test_a_name_that_is_erased_is_a_pseudonym_everywhere_and_again_after_a_restore(
    tmp_path: Path,
) -> None:
    signer = new_key("account")

    async def write(registry: Registry) -> None:
        row = (1, "plant-7", "x", 0, 0, "hub:anna", "why", 0, "anna")
        await registry.write(
            [
                RowChange("INSERT INTO alert_silence VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", [row]),
                RowChange("INSERT INTO revocation VALUES ('U1', 'PEOPLE', 'anna', 1, 0)", [()]),
            ]
        )

    async with await Registry.open(tmp_path / "hub.db") as registry:
        await write(registry)
        known = (await rows.pseudonyms(registry, ["anna", "bob"]))["anna"]
        assert await counted(registry, "anna") == {
            "alert_silence": 1, "revocation": 1, "audit_name": 1,
        }  # fmt: skip
        person = await erase_person(registry, signer, "anna", 7)
        # Who did two things is still known to be one.
        assert person.pseudonym == known
        assert await counted(registry, "anna") == {}
        [(who, ended_by)] = await registry.fetch("SELECT who, ended_by FROM alert_silence")
        assert (who, ended_by) == (f"hub:{known}", known)
        assert {*(await rows.names(registry)).values()} == {"bob"}
        await registry.write([RowChange("DELETE FROM alert_silence", [()])])
        await registry.write([RowChange("DELETE FROM revocation", [()])])
        await write(registry)  # as an older hub.db has it
        assert await erase_again(registry, signer) == 1
        assert await counted(registry, "anna") == {}
        assert list((await erased_people(registry)).values()) == [person]
        await registry.compact()
    assert b"anna" not in (tmp_path / "hub.db").read_bytes()
