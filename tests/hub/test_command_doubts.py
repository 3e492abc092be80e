"""Commands whose vehicle has another ledger since: what the former one knew of them may be lost."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec import Opaque, Point, encode_point
from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.commands import outcome
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.commands.book import CommandBook
from backhaul_hub.commands.command import Command, Key
from backhaul_hub.commands.outcome import Doubt, State, late
from backhaul_hub.continuity.examine import Examined, examine
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.store import Registry
from backhaul_hub.lane_records.device_words import WordBook
from tests.hub.command_book import DONE, KEY, NOW, RULES, Running, S, booked, examined, vehicle_says
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = 7, 8
DOUBT = Doubt("VID-001", NEW)
EXPIRED = {"state": "expired", "error": "its deadline had passed before it could be started"}


@pytest.fixture(params=["worded", "reworded"], autouse=True)
def _sentences(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have all of this decided again with one sentence for every error: nothing may hang on their words."""
    if request.param == "reworded":
        monkeypatch.setattr(outcome, "TEXTS", dict.fromkeys(outcome.TEXTS, "it did not work"))


def begins(
    epoch: int = NEW, seq: int = 1, lane: str = "live", stored_ns: int = NOW + 60 * S
) -> Examined:
    """Return a message of an epoch, the first of its live lane where nothing else is said."""
    uplink = parse_uplink("up.VID-001.e.boot")
    point = Point(node="", type="", time=NOW, value=Opaque(6, b"{}"))
    sealed = encode_point(point, epoch=epoch, seq=seq)
    return Examined(LaneKey("VID-001", lane, epoch), seq, uplink, sealed, stored_ns=stored_ns)


def mark(time_ns: int, epoch: int = OLD, device: str = "VID-001") -> Any:
    """Return the rows of a mark, as the control plane stores them."""
    body = Opaque(6, json.dumps({"epoch": epoch, "lanes": {}}).encode())
    point = Point(node="", type="", time=time_ns, value=body)
    said = examine(f"up.{device}.e.mark", encode_point(point, epoch=epoch, seq=5))
    words = WordBook(Continuity())
    assert said.word is not None
    words.take(said.key, said.seq, said.word, time_ns)
    return words.take_changes()


def sent(**fields: Any) -> tuple[CommandBook, Command]:
    """Return a command with ten seconds to its deadline that a connected vehicle was sent."""
    book, command = booked(**({"deadline_s": 10} | fields))
    book.sent(command, NOW + 1)
    book.link_up("VID-001", 0.0)
    return book, command


def test_what_nothing_is_heard_of_since_a_new_ledger_has_perhaps_run() -> None:
    book, command = sent()
    assert book.doubt(Doubt("VID-002", NEW)) == []
    assert book.doubt(DOUBT) == [command]
    assert command.state is State.SENT  # the new ledger may have a better word
    assert command.told().keys().isdisjoint({"error", "by", "epoch"})
    assert book.expire(NOW + 10 * S - 1) == []
    assert book.expire(NOW + 10 * S) == [command]
    told = command.told()
    assert (told["state"], told["by"], told["epoch"]) == ("interrupted", "hub", NEW)
    assert told["ended_ns"] == NOW + 10 * S
    assert book.heard(KEY, vehicle_says(EXPIRED)) is None  # of a ledger that cannot know
    assert book.heard(KEY, vehicle_says(DONE)) is command


def test_what_had_just_expired_has_perhaps_run_too() -> None:
    book, command = sent()
    book.expire(NOW + 10 * S)
    assert command.state is State.EXPIRED
    assert book.doubt(DOUBT) == [command]
    assert (command.state, command.ended_ns) == (State.INTERRUPTED, NOW + 10 * S)


@pytest.mark.parametrize(
    "said", [{"state": "accepted"}, DONE, EXPIRED], ids=["accepted", "done", "expired"]
)
def test_what_the_vehicle_has_a_word_on_is_in_no_doubt(said: dict[str, Any]) -> None:
    book, command = sent()
    if said is EXPIRED:  # the hub says it first, the vehicle's own word counts
        book.expire(NOW + 10 * S)
    assert book.heard(KEY, vehicle_says(said)) is command
    assert book.heard(KEY, vehicle_says(said)) is None
    assert book.doubt(DOUBT) == []
    assert command.state == said["state"]


def test_what_was_started_under_another_ledger_is_sent_again_until_something_is_heard_of_it() -> (
    None
):
    """The first may have been passed over: a leaf whose store was lost sets its source up anew."""
    book, command = sent()
    book.heard(KEY, vehicle_says({"state": "accepted"}))
    assert not book.unheard(6.0)
    assert book.to_send() is None
    book.doubt(DOUBT)
    assert book.to_send() is command
    book.sent(command, NOW + 2 * S)
    assert book.to_send() is None
    assert book.unheard(100.0)
    assert book.to_send() is command
    book.sent(command, NOW + 3 * S)
    assert command.state is State.ACCEPTED
    book.heard(KEY, vehicle_says({"state": "accepted"}))  # it is the same ledger after all
    assert not book.unheard(300.0)
    assert book.heard(KEY, vehicle_says(DONE)) is command


def test_a_doubt_ends_where_the_new_ledger_takes_the_command_up() -> None:
    book, command = sent()
    book.doubt(DOUBT)
    assert command.doubted
    book.heard(KEY, vehicle_says({"state": "accepted"}))
    assert not command.doubted
    assert book.expire(NOW + 10 * S) == []


def test_what_had_just_expired_and_was_started_has_perhaps_run() -> None:
    book, command = sent()
    book.expire(NOW + 10 * S)
    assert book.heard(KEY, vehicle_says({"state": "accepted"}, NOW + 9 * S)) is command
    assert (command.state, command.told()["by"]) == (State.INTERRUPTED, "hub")
    assert book.heard(KEY, vehicle_says(DONE)) is command


ENDS = [EXPIRED, {"state": "interrupted", "error": "cut short"}, DONE]


@pytest.mark.parametrize("end", ENDS, ids=lambda end: str(end["state"]))
async def test_the_vehicles_end_stands_whenever_its_start_is_heard(
    tmp_path: Path, end: dict[str, Any]
) -> None:
    """It may have expired after its start was written down: the ledger waited for the disk."""
    started = {"state": "accepted"}
    for words in ([started, end], [end, started]):
        book, command = sent()
        book.expire(NOW + 10 * S)
        async with await Registry.open(tmp_path / f"{words[0]['state']}.db") as registry:
            await registry.write([command_rows.put([command])])
            for said in words:
                book.heard(KEY, vehicle_says(said, NOW + 11 * S))
                late_word = late(vehicle_says(said, NOW + 11 * S))
                await registry.write([command_rows.put_late(KEY, late_word)])
            assert (command.state, command.told().get("by")) == (end["state"], None)
            assert await command_rows.find(registry, [KEY]) == [command]


def test_what_the_vehicle_was_never_connected_for_has_not_run() -> None:
    book, command = booked(deadline_s=10)
    book.sent(command, NOW + 1)
    assert book.doubt(DOUBT) == []
    book.expire(NOW + 10 * S)
    assert command.told()["code"] == ErrorCode.AWAY
    book.link_up("VID-001", 0.0)  # after it is over
    assert book.doubt(DOUBT) == []
    assert command.state is State.EXPIRED


def test_a_vehicle_that_was_connected_before_or_after_may_have_got_it() -> None:
    before = CommandBook(RULES)
    before.link_up("VID-001", 0.0)
    _, command = booked(deadline_s=10)
    before.add(command)
    before.link_down("VID-001")
    after, other = booked(deadline_s=10)
    after.link_up("VID-002", 0.0)
    after.link_up("VID-001", 0.0)
    after.link_down("VID-001")
    restored = CommandBook(RULES)  # nobody knows
    _, third = booked(deadline_s=10)
    restored.restore([third])
    for book, each in ((before, command), (after, other), (restored, third)):
        book.expire(NOW + 10 * S)
        assert each.told()["code"] == ErrorCode.UNHEARD


async def _begins(it: Running, said: Examined, *, is_new: bool = True) -> None:
    it.shell.on_message(said, is_new)
    await it.registry.write(it.shell.take_changes())
    it.shell.stored()


async def _sent(it: Running) -> None:
    """Have a command sent to a connected vehicle, and told of."""
    it.shell.link_up("VID-001")
    await it.take("a")
    await until(lambda: [each["state"] for each in it.told[-1:]] == ["sent"])


async def _expired(it: Running, *ids: str) -> None:
    """Have commands expire unheard, and told of, so that only hub.db knows them."""
    it.shell.link_up("VID-001")
    await it.take(*ids)
    await until(lambda: len(it.down) == len(ids))
    ended = it.shell.book.expire(NOW + round(RULES.deadline_s * S))
    await it.shell._store_ended(ended, it.registry)
    # Who is told of the second as queued may find it over already.
    await until(lambda: sorted(it.acknowledged) == list(ids))


async def _state(it: Running, id_: str = "a") -> str:
    (command,) = await command_rows.find(it.registry, [Key("VID-001", id_)])
    return command.state


async def test_what_only_hub_db_knows_as_expired_is_said_anew(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _expired(it, "a", "b")
            await it.ends("b", EXPIRED)  # late, and the vehicle's own
            await _begins(it, begins(seq=2))
            await _begins(it, begins(lane="bulk"))
            await _begins(it, begins(), is_new=False)
            assert await _state(it) == "expired"
            await _begins(it, begins())
            assert (await _state(it), await _state(it, "b")) == ("interrupted", "expired")
            await until(lambda: it.told[-1]["state"] == "interrupted")
            assert (it.told[-1]["id"], it.told[-1]["epoch"]) == ("a", NEW)
            await it.ends("a", DONE)
            assert await _state(it) == "done"


@pytest.mark.parametrize(
    ("marks", "state"),
    [
        ([mark(NOW + S)], "interrupted"),
        ([mark(NOW + round(RULES.deadline_s * S))], "expired"),
        ([mark(NOW + 1000 * S, epoch=NEW)], "interrupted"),
        ([mark(NOW + 1000 * S, device="VID-002")], "interrupted"),
    ],
    ids=["before-its-deadline", "after-it", "of-the-new-ledger", "of-another"],
)
async def test_what_a_mark_of_the_former_ledger_settles_is_in_no_doubt(
    tmp_path: Path, marks: list[Any], state: str
) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _expired(it, "a")
            for changes in marks:
                await registry.write(changes)
            await _begins(it, begins())
            assert await _state(it) == state


@pytest.mark.parametrize(
    ("began_ns", "state"), [(NOW - 2 * S, "expired"), (NOW - S, "interrupted")]
)
async def test_what_was_sent_after_the_epoch_began_is_in_no_doubt(
    tmp_path: Path, began_ns: int, state: str
) -> None:
    """A registry that was rebuilt reads UP from its start: the epoch is news to it, and began long ago."""
    book, command = sent()
    concerned = book.doubt(Doubt("VID-001", NEW, NOW - 1))
    assert concerned == []
    assert book.doubt(Doubt("VID-001", NEW, NOW)) == [command]
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _expired(it, "a")
            await _begins(it, begins(stored_ns=began_ns))
            assert await _state(it) == state


async def test_a_doubt_is_of_one_vehicle_and_one_epoch(tmp_path: Path) -> None:
    book, mine = sent()
    book.expire(NOW + 10 * S)
    another = replace(mine, device="VID-002")
    former = replace(mine, id="b", state=State.INTERRUPTED, outcome=Doubt("VID-001", OLD).outcome)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write([command_rows.put([mine, another, former])])
        await registry.write(command_rows.put_doubt(DOUBT, []))
        assert [each.key for each in await command_rows.doubted(registry, DOUBT)] == [mine.key]
        known = await command_rows.find(registry, [another.key, former.key])
        assert known == [another, former]


async def test_what_was_started_has_not_expired_though_the_hub_hears_that_late(
    tmp_path: Path,
) -> None:
    """A mark that comes with that word is of a time after the deadline, and then the ledger is lost."""
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _expired(it, "a", "b")
            await it.ends("a", {"state": "accepted"})
            await registry.write(mark(NOW + 1000 * S))
            await _begins(it, begins())
            assert (await _state(it), await _state(it, "b")) == ("interrupted", "expired")
            await it.ends("a", DONE)
            assert await _state(it) == "done"


async def test_an_end_stands_though_the_start_is_heard_after_it(tmp_path: Path) -> None:
    """As where the start was lost on its way, and is sent again."""
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _expired(it, "a")
            it.shell.on_message(examined("a", DONE), is_new=True)
            await it.ends("a", {"state": "accepted"})
            assert await _state(it) == "done"


async def test_a_doubt_outlives_the_control_plane(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _sent(it)
            await _begins(it, begins())
            await until(lambda: not it.shell._untold)
            assert len(it.told) == 2, "it is no news yet"
        book = CommandBook(RULES)
        book.restore(await command_rows.restore(registry))
        (command,) = book.expire(NOW + round(RULES.deadline_s * S))
        assert (command.state, command.told()["epoch"]) == ("interrupted", NEW)


async def test_a_word_that_came_sooner_is_not_put_back_by_the_hubs(tmp_path: Path) -> None:
    book, command = sent()
    async with await Registry.open(tmp_path / "hub.db") as registry:
        book.expire(NOW + 10 * S)
        slower = command_rows.put([command])
        await registry.write([slower])
        book.heard(KEY, vehicle_says(EXPIRED, NOW + 11 * S))
        await registry.write([command_rows.put([command])])
        await registry.write([slower])
        assert await command_rows.find(registry, [KEY]) == [command]
        assert "by" not in command.told()


async def test_a_doubt_counts_although_the_hubs_word_is_stored_later(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await _sent(it)
            ended = it.shell.book.expire(NOW + round(RULES.deadline_s * S))
            slower = command_rows.put(ended)
            await _begins(it, begins())
            await registry.write([slower])
            assert await _state(it) == "interrupted"
            await until(lambda: it.told[-1]["state"] == "interrupted")
