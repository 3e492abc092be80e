"""What a ledger has alone is what the hub has not proved, and no more is excused when it is damaged."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from backhaul_agent.commit.framer import pack
from backhaul_agent.ledger.rows import LedgerChanges, Outgoing, Staged
from backhaul_agent.ledger.system_events import app_event
from backhaul_codec import Point, encode_point
from tests.agent.ledgers import open_ledger
from tests.chaos.damage import Damage, Rollback, proved
from tests.chaos.diary import Entry, Happening, Reading, Write
from tests.chaos.evidence import EVENT, LaneName
from tests.chaos.faults_ledger import inode_of, look_up, set_aside_ns, spoil
from tests.chaos.look import restless
from tests.chaos.rows import frame, reading

if TYPE_CHECKING:
    from pathlib import Path

VID = "VID-001"


def setting(number: int) -> Outgoing:
    body = encode_point(Point("cfg", "number", number, float(number)), epoch=0, seq=0)
    return Outgoing("live", "p.cfg.number.%", body)


def happening(number: int) -> Outgoing:
    return app_event(EVENT, {"data": {"number": number}}, number, 0)


async def test_only_what_is_above_the_watermark_or_in_no_message_stands_in_a_ledger_alone(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    for number in (1, 2, 3):
        await ledger.commit(LedgerChanges([frame(number), happening(number), setting(number)]))
    staged = [Staged("imu", 1, pack([reading(4)]))]
    await ledger.commit(LedgerChanges(staged=staged, watermarks={"bulk": 2, "live": 4}))
    damage = Damage(VID, 0, 0)
    assert look_up(path, damage)
    await ledger.close()
    assert damage.epoch == 42
    assert damage.readings == {Reading(VID, "imu", number, float(number)) for number in (3, 4)}
    assert damage.happenings == {Happening(VID, 3)}
    assert damage.writes == {Write(VID, "cfg", number) for number in (3.0,)}


def test_what_the_hub_lost_again_is_proved_no_more_for_as_long_as_it_may_lack_it() -> None:
    lane, other = LaneName(VID, "bulk", 42), LaneName(VID, "bulk", 43)
    put_back = Rollback(100, {lane: 3}, until_ns=200)
    soon_ns, later_ns = 200 + 60 * 10**9, 201 + 60 * 10**9
    assert proved(lane, 5, [], soon_ns) == 5
    assert proved(lane, 5, [put_back], soon_ns) == 3
    assert proved(lane, 2, [put_back], soon_ns) == 2
    assert proved(lane, 5, [put_back], later_ns) == 5
    assert proved(other, 5, [put_back], soon_ns) == 0
    not_yet = Rollback(300, {lane: 4})
    assert proved(lane, 5, [put_back, not_yet], later_ns) == 4
    assert proved(lane, 5, [put_back, not_yet], soon_ns) == 3


async def test_what_the_hub_may_have_lost_again_stands_in_a_ledger_alone_too(
    tmp_path: Path,
) -> None:
    path = tmp_path / "ledger.db"
    ledger = await open_ledger(path)
    for number in (1, 2, 3):
        await ledger.commit(LedgerChanges([frame(number), happening(number)]))
    await ledger.commit(LedgerChanges(watermarks={"bulk": 3, "live": 3}))
    damage = Damage(VID, 0, 0)
    held = {LaneName(VID, "bulk", 42): 2, LaneName(VID, "live", 42): 3}
    assert look_up(path, damage, [Rollback(0, held)])
    await ledger.close()
    assert damage.readings == {Reading(VID, "imu", 3, 3.0)}
    assert damage.happenings == set()


async def test_a_ledger_that_is_damaged_already_is_not_looked_up(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(b"garbage" * 1000)
    assert not look_up(path, Damage(VID, 0, 0))
    assert not look_up(tmp_path / "none.db", Damage(VID, 0, 0))


def test_what_is_spoilt_is_the_file_or_its_log_and_the_same_for_a_seed(tmp_path: Path) -> None:
    path, log = tmp_path / "ledger.db", tmp_path / "ledger.db-wal"
    found = set()
    for seed in [*range(20), *range(20)]:
        path.write_bytes(bytes(9000))
        log.write_bytes(bytes(9000))
        spoil(path, Random(seed))
        assert (path.read_bytes() == bytes(9000)) != (log.read_bytes() == bytes(9000))
        found.add((seed, path.read_bytes(), log.read_bytes()))
    assert len(found) == 20


def test_what_is_kept_in_a_damaged_file_counts_until_it_is_set_aside() -> None:
    damage = Damage(VID, 1, at_ns=100, until_ns=200)
    kept = [
        Entry("event", VID, asked, {}, "kept", answered)
        for asked, answered in ((90, 99), (150, 160), (201, 210))
    ]
    assert [damage.during(each) for each in kept] == [False, True, False]
    assert not damage.during(Entry("event", "VID-002", 150, {}, "kept", 160))
    damage.until_ns = 0
    assert not any(map(damage.during, kept))


def test_a_file_that_is_damaged_takes_no_room_and_stays_the_same_file(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    path.write_bytes(bytes(9000))
    before = inode_of(path)
    for seed in range(20):
        spoil(path, Random(seed))
        assert len(path.read_bytes()) <= 9000
    assert inode_of(path) == before


def test_when_a_damaged_ledger_went_is_known_also_where_there_was_no_room_to_keep_it(
    tmp_path: Path,
) -> None:
    ledger, kept = tmp_path / "ledger.db", tmp_path / "ledger.db.damaged"
    ledger.touch()
    damage = Damage(VID, 1, at_ns=1, inode=inode_of(ledger))
    assert set_aside_ns(ledger, damage, 7) == 0
    ledger.rename(kept)
    assert set_aside_ns(ledger, damage, 7) == kept.stat().st_ctime_ns
    ledger.touch()
    kept.unlink()
    assert set_aside_ns(ledger, damage, 7) == 7


def at_rest(**more: Any) -> dict[str, Any]:
    """Return the status of a vehicle that has nothing to do, but for `more` in its ledger."""
    what = ("staged_points", "suspect_points", "former_epochs_owed", "quarantined_rows")
    ledger = dict.fromkeys(what, 0) | {"full": False, "disk_full": False} | more
    return {"epoch": 5, "ledger": ledger, "lanes": {}, "leaf": {"failed_streams": {}}}


def test_rows_that_were_set_aside_are_no_rest_but_after_damage() -> None:
    report = {"devices": [{"device": VID, "lanes": {}}]}
    status = at_rest(quarantined_rows=2)
    assert restless(VID, status, report, damaged=False) == [f"{VID}: 2 quarantined_rows"]
    assert restless(VID, status, report, damaged=True) == []
    status["ledger"]["staged_points"] = 1
    assert restless(VID, status, report, damaged=True) == [f"{VID}: 1 staged_points"]


def test_a_full_disk_and_a_stream_that_failed_are_no_rest() -> None:
    report = {"devices": [{"device": VID, "lanes": {}}]}
    for what in ("full", "disk_full"):
        said = restless(VID, at_rest(**{what: True}), report, damaged=True)
        assert said == [f"{VID}: True {what}"]
    status = at_rest() | {"leaf": {"failed_streams": {"IN": "no space left"}}}
    assert restless(VID, status, report, damaged=False) == [f"{VID}: ('IN', 'no space left')"]


def test_what_the_hub_proved_of_another_epoch_proves_nothing_of_this_one() -> None:
    status = at_rest() | {"lanes": {"bulk": {"last_seq": 3}}}
    for epoch, many in ((5, 0), (4, 1)):
        lanes = {"bulk": {"epoch": epoch, "watermark": 9}}
        report = {"devices": [{"device": VID, "lanes": lanes}]}
        assert len(restless(VID, status, report, damaged=False)) == many
