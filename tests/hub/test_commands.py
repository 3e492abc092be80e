"""Commands at the hub: what an operator may publish, where a command stands, and its rows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from backhaul_codec import Opaque, Point
from backhaul_hub import command_rows, questions
from backhaul_hub.command_book import (
    Arrival,
    Command,
    CommandBook,
    Heard,
    Key,
    State,
    read_arrival,
    read_result,
)
from backhaul_hub.command_shell import arrival_of
from backhaul_hub.config import Commands
from backhaul_hub.consumers import Change
from backhaul_hub.registry import Registry
from backhaul_hub.schema import SCHEMA_VERSION

if TYPE_CHECKING:
    from pathlib import Path

S = 1_000_000_000
NOW = 1_700_000_000 * S
RULES = Commands(rows_max=10)
DEVICES = {"VID-001"}
SUBJECT = "fleet.prod.veh.VID-001.cmd.door.unlock"


def arrived(data: bytes = b"", subject: str = SUBJECT, *, full: bool = False) -> Command:
    return read_arrival(Arrival(subject, data, 7, NOW), RULES, DEVICES, full=full)


def vehicle_says(body: dict[str, Any], time_ns: int = NOW) -> Heard:
    value = Opaque(6, json.dumps(body).encode())
    return read_result(Point(node="", type="", time=time_ns, value=value))


def test_an_empty_message_is_a_command_with_an_id_of_its_place() -> None:
    command = arrived()
    assert command == arrived()  # delivered again it is the same
    assert (command.device, command.name, command.state) == ("VID-001", "door.unlock", "queued")
    assert command.deadline_ns == NOW + round(RULES.deadline_s * S)
    subject, body = command.down()
    assert subject == f"in.VID-001.c.{command.id}"
    assert json.loads(body) == {
        "name": "door.unlock",
        "params": None,
        "sent_ns": NOW,
        "deadline_ns": command.deadline_ns,
    }


def test_a_command_is_as_its_message_says() -> None:
    command = arrived(b'{"id": "a-1", "params": {"n": 1.50}, "deadline_s": 2.5, "who": "me"}')
    assert (command.id, command.params, command.who) == ("a-1", '{"n": 1.50}', "me")
    assert command.deadline_ns == NOW + 2_500_000_000


@pytest.mark.parametrize(
    ("data", "subject", "full", "words"),
    [
        (b"{", SUBJECT, False, "truncated"),
        (b"[]", SUBJECT, False, "object"),
        (b"\xff", SUBJECT, False, "not sent"),
        (b'{"id": "a b"}', SUBJECT, False, "id"),
        (b'{"id": "a\\n"}', SUBJECT, False, "id"),
        (b'{"id": 5}', SUBJECT, False, "id"),
        (b'{"colour": 1}', SUBJECT, False, "colour"),
        (b'{"deadline_s": 0}', SUBJECT, False, "deadline_s"),
        (b'{"deadline_s": 1e12}', SUBJECT, False, "deadline of at most"),
        (b'{"params": "' + b"x" * 70_000 + b'"}', SUBJECT, False, "are allowed"),
        (b"", "fleet.prod.veh.VID-404.cmd.x", False, "no device VID-404"),
        (b"", "fleet.prod.veh.VID-001.cmd.a=b", False, "not sent"),
        (b"", SUBJECT, True, "too many"),
    ],
)
def test_what_cannot_be_sent_has_failed_with_a_reason(
    data: bytes, subject: str, full: bool, words: str
) -> None:
    command = arrived(data, subject, full=full)
    assert command.state is State.FAILED
    assert command.ended_ns == NOW
    assert words in command.told()["error"]
    assert command.told()["by"] == "hub"


def test_sequence_and_time_are_read_from_both_forms_of_the_reply_subject() -> None:
    for reply in (
        f"$JS.ACK.TWIN_CMD.control.1.42.9.{NOW}.0",
        f"$JS.ACK.hub.ACCOUNT.TWIN_CMD.control.1.42.9.{NOW}.0.rand",
        f"$JS.ACK.hub.ACCOUNT.TWIN_CMD.control.1.42.9.{NOW}.0",
    ):
        message: Any = SimpleNamespace(reply=reply, subject=SUBJECT, data=b"x")
        assert arrival_of(message) == Arrival(SUBJECT, b"x", 42, NOW)


@pytest.mark.parametrize(
    "point",
    [
        Point(node="", type="", time=1, value=1.0),
        Point(node="", type="", time=1, value=Opaque(6, b"{}")),
        Point(node="", type="", time=1, value=Opaque(6, b"{")),
        Point(node="", type="", time=1, value=Opaque(6, b'{"state": "sent"}')),
        Point(node="", type="", time=1, value=Opaque(6, b'{"state": "done", "runs": "x"}')),
    ],
)
def test_garbage_is_no_result(point: Point) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_result(point)


def booked(**fields: Any) -> tuple[CommandBook, Command]:
    book, command = CommandBook(RULES), arrived(msgspec.json.encode({"id": "a"} | fields))
    book.add(command)
    return book, command


KEY = Key("VID-001", "a")
DONE = {"state": "done", "result": {"ok": True}, "runs": 1}


def test_a_command_goes_its_way_and_never_back() -> None:
    book, command = booked()
    assert book.to_send() is command
    assert book.sent(command, NOW + 1)
    assert book.to_send() is None
    assert not book.sent(command, NOW + 2)
    assert book.heard(KEY, vehicle_says({"state": "accepted"}, NOW + 3)) is command
    assert book.heard(KEY, vehicle_says({"state": "accepted"}, NOW + 4)) is None
    assert book.heard(KEY, vehicle_says(DONE, NOW + 5)) is command
    assert book.heard(KEY, vehicle_says({"state": "failed"}, NOW + 6)) is None
    assert book.heard(KEY, vehicle_says({"state": "accepted"}, NOW + 6)) is None
    told = command.told()
    assert (told["state"], told["result"]) == ("done", {"ok": True})
    times = [told[f"{state}_ns"] for state in ("queued", "sent", "accepted", "ended")]
    assert times == [NOW, NOW + 1, NOW + 3, NOW + 5]
    book.close(command)
    assert book.heard(KEY, vehicle_says(DONE)) is None


def test_what_is_not_accepted_expires_at_its_deadline() -> None:
    for sent in (False, True):
        book, command = booked(deadline_s=10)
        if sent:
            book.sent(command, NOW + 1)
        assert book.expire(NOW + 10 * S - 1) == []
        assert book.expire(NOW + 10 * S) == [command]
        assert (command.state, command.told()["by"]) == ("expired", "hub")
        assert book.expire(NOW + 11 * S) == []
        # The vehicle knows better, whatever it says, and whenever.
        assert book.heard(KEY, vehicle_says(DONE)) is command
        assert command.state is State.DONE


def test_what_is_accepted_and_never_heard_of_again_ends_too() -> None:
    book, command = booked(deadline_s=10)
    book.heard(KEY, vehicle_says({"state": "accepted"}))
    assert book.expire(NOW + 11 * S) == []
    assert book.expire(NOW + round((10 + RULES.result_wait_s) * S)) == [command]
    assert command.state is State.INTERRUPTED


def test_everything_open_is_sent_again_where_down_may_lack_it() -> None:
    book, command = booked()
    book.sent(command, NOW)
    book.heard(KEY, vehicle_says({"state": "accepted"}))
    book.send_again()
    assert book.to_send() is command
    assert not book.sent(command, NOW)
    assert command.state is State.ACCEPTED


async def test_rows_come_back_as_they_were_and_never_go_back(tmp_path: Path) -> None:
    book, command = booked(params={"n": 1}, who="me")
    async with await Registry.open(tmp_path / "hub.db") as registry:
        queued = command_rows.put([command])
        await registry.write([queued])
        assert await command_rows.restore(registry) == [command]
        book.heard(KEY, vehicle_says(DONE, NOW + 5))
        await registry.write([command_rows.put([command])])
        await registry.write([queued])  # of a task that was slower
        assert await command_rows.restore(registry) == []
        assert await command_rows.find(registry, [KEY, Key("VID-002", "a")]) == [command]


async def test_a_late_word_of_the_vehicle_replaces_the_hubs(tmp_path: Path) -> None:
    book, command = booked(deadline_s=1)
    book.expire(NOW + 2 * S)
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write([command_rows.put([command])])
        await registry.write([command_rows.put_late(KEY, vehicle_says(DONE, NOW + 9))])
        late = vehicle_says({"state": "interrupted"})
        await registry.write([command_rows.put_late(KEY, late)])
        (found,) = await command_rows.newest(registry, questions.Commands(id="a"))
        assert (found.state, found.ended_ns) == ("done", NOW + 9)


async def test_rows_are_bounded_by_number_and_age(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        for number in range(20):
            command = arrived(msgspec.json.encode({"id": f"c{number}"}))
            command.ended_ns = 0 if number == 2 else NOW + number * 86_400 * S
            await registry.write([command_rows.put([command])])
        await registry.write([command_rows.forget(NOW + 30 * 86_400 * S, 20.0, 1000)])
        left = await command_rows.newest(registry, questions.Commands())
        assert [each.id for each in left] == ["c2", *(f"c{number}" for number in range(10, 20))]
        await registry.write([command_rows.forget(NOW, 30.0, 5)])
        left = await command_rows.newest(registry, questions.Commands("VID-001"))
        assert [each.id for each in left] == ["c2", *(f"c{number}" for number in range(15, 20))]


async def test_a_hub_without_commands_is_brought_up_to_date(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write(
            [
                Change("DROP TABLE command", [()]),
                Change("DROP TABLE shadow", [()]),
                Change("DROP TABLE enrolment", [()]),
                Change("DROP TABLE revocation", [()]),
                Change("DROP TABLE person", [()]),
                Change("DROP TABLE rotation", [()]),
                Change("ALTER TABLE device RENAME COLUMN public_key TO password_hash", [()]),
                Change("PRAGMA user_version = 3", [()]),
            ]
        )
    async with await Registry.open(tmp_path / "hub.db") as registry:
        assert await command_rows.restore(registry) == []
        assert tuple((await registry.fetch("PRAGMA user_version"))[0]) == (SCHEMA_VERSION,)
