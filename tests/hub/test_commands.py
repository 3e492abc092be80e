"""Commands at the hub: what an operator may publish, where a command stands, and its rows."""

from __future__ import annotations

import asyncio
import json
from decimal import Decimal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pytest
from click.testing import CliRunner

from backhaul_codec import Opaque, Point
from backhaul_hub import questions
from backhaul_hub.cli.main import cli
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.commands.command import Key
from backhaul_hub.commands.delivery import Delivery
from backhaul_hub.commands.outcome import State, read_result
from backhaul_hub.commands.service import DELIVER, delivery_of
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.migrations import SCHEMA_VERSION
from backhaul_hub.db.store import Registry
from tests.hub.command_book import (
    DONE,
    KEY,
    NOW,
    RULES,
    SUBJECT,
    Running,
    S,
    arrived,
    booked,
    vehicle_says,
)
from tests.support.hub_db_tables import tables_after
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


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
    ("params", "given"),
    [
        ("[18446744073709551615, -9223372036854775808]", None),
        ("[0.12345678901234567891]", "[0.12345678901234568]"),
        ("[1e-400]", "[0.0]"),
        ("[0.1, 1.50, 1e3]", None),
    ],
)
def test_the_record_says_what_the_handler_is_given(params: str, given: str | None) -> None:
    command = arrived(b'{"params": %s}' % params.encode())
    assert command.params == (given or params)
    told = json.dumps(command.told()["params"])
    body = command.down()[1].decode()
    assert json.loads(body, parse_float=Decimal)["params"] == json.loads(told, parse_float=Decimal)


BEYOND = ("NaN", "[Infinity]", '{"a": 1e999}', "9" * 310, '{"a": 1, "a": 2}')


@pytest.mark.parametrize("params", BEYOND)
def test_params_that_would_be_others_are_refused_under_the_id_of_who_sent_them(params: str) -> None:
    command = arrived(b'{"id": "mine", "params": %s}' % params.encode())
    assert (command.id, command.state) == ("mine", State.FAILED)
    assert command.told()["params"] is None
    assert arrived(b'{"id": "m n", "params": NaN}').id == arrived().id
    assert arrived(b'{"id": "mine", "colour": 1}').id == "mine"


def test_what_an_older_hub_took_is_told_as_text() -> None:
    old = arrived()
    old.params = "[1e999]"
    assert old.told()["params"] == "[1e999]"
    with pytest.raises(ValueError, match="range"):
        read_result(Point("", "", NOW, Opaque(6, b'{"state": "done", "result": 1e999}')))


@pytest.mark.parametrize(
    "arguments",
    [
        *(["door", "--params", params] for params in BEYOND),
        *(
            ["a b"],
            ["door", "--id", "a b"],
            ["door", "--params", "[" * 5000],
            ["door", "--who", "x" * 65],
        ),
        ["door", "--params", json.dumps("x" * 70_000)],
        ["door", "--deadline", "nan"],
    ],
)
def test_the_command_line_refuses_at_once_what_the_hub_would(
    tmp_path: Path, arguments: list[str]
) -> None:
    """No hub is there: what were not refused would say that hub.toml is missing."""
    done = CliRunner().invoke(
        cli, ["command", "VID-001", *arguments, "--dir", str(tmp_path)], catch_exceptions=False
    )
    assert done.exit_code == 2, done.output
    assert "hub.toml" not in done.output


UNSPEAKABLE = (b'"\xff"', b"[" * 30_000 + b"]" * 30_000, b"9" * 5000)
"""JSON, or almost, that nobody could be told: no UTF-8, too deep, or a number of too many digits."""


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
        *((b'{"params": %s}' % each, SUBJECT, False, "not sent") for each in UNSPEAKABLE),
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
        assert delivery_of(message) == Delivery(SUBJECT, b"x", 42, NOW)


@pytest.mark.parametrize(
    "point",
    [
        Point(node="", type="", time=1, value=1.0),
        Point(node="", type="", time=1, value=Opaque(6, b"{}")),
        Point(node="", type="", time=1, value=Opaque(6, b"{")),
        Point(node="", type="", time=1, value=Opaque(6, b'{"state": "sent"}')),
        Point(node="", type="", time=1, value=Opaque(6, b'{"state": "done", "runs": "x"}')),
        *(
            Point(
                node="", type="", time=1, value=Opaque(6, b'{"state": "done", "result": %s}' % it)
            )
            for it in UNSPEAKABLE
        ),
    ],
)
def test_garbage_is_no_result(point: Point) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_result(point)


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
        (found,) = await command_rows.newest(registry, questions.CommandsQuestion(id="a"))
        assert (found.state, found.ended_ns) == ("done", NOW + 9)


async def test_rows_are_bounded_by_number_and_age(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        for number in range(20):
            command = arrived(msgspec.json.encode({"id": f"c{number}"}))
            command.ended_ns = 0 if number == 2 else NOW + number * 86_400 * S
            await registry.write([command_rows.put([command])])
        await registry.write([command_rows.forget(NOW + 30 * 86_400 * S, 20.0, 1000)])
        left = await command_rows.newest(registry, questions.CommandsQuestion())
        assert [each.id for each in left] == ["c2", *(f"c{number}" for number in range(10, 20))]
        await registry.write([command_rows.forget(NOW, 30.0, 5)])
        left = await command_rows.newest(registry, questions.CommandsQuestion("VID-001"))
        assert [each.id for each in left] == ["c2", *(f"c{number}" for number in range(15, 20))]


async def test_what_is_published_where_commands_are_delivered_is_none(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        for reply in ("", "_INBOX.x"):
            await it.shell._arrived(
                cast("Any", SimpleNamespace(reply=reply, subject=DELIVER, data=b""))
            )
        await it.shell._arrived(it.message("a"))
        taking = asyncio.create_task(it.shell._take_in(registry))
        try:
            await until(lambda: taking.done() or len(it.shell.book.open) == 1)
            assert not taking.done()
        finally:
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)


async def test_a_result_too_large_to_be_told_holds_up_nobody(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await it.take("a", "b")
            await it.ends("a", {"state": "done", "result": "x" * it.bytes_max})
            await it.ends("b", DONE)
            await until(lambda: it.acknowledged == ["a", "b"])
        ends = {each["id"]: each for each in it.told if "ended_ns" in each}
        assert ends["b"]["result"] == DONE["result"]
        assert ends["a"]["state"] == "done"
        assert "too large" in ends["a"]["error"]


LATER = ("import_source", "import_epoch", "import_hour", "import_stream", *tables_after(15))


async def test_a_hub_without_commands_is_brought_up_to_date(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await registry.write(
            [
                RowChange("DROP TABLE command", [()]),
                RowChange("DROP TABLE shadow", [()]),
                RowChange("DROP TABLE enrolment", [()]),
                RowChange("DROP TABLE revocation", [()]),
                RowChange("DROP TABLE person", [()]),
                RowChange("DROP TABLE rotation", [()]),
                RowChange("DROP TABLE vehicle", [()]),
                RowChange("DROP TABLE account_generation", [()]),
                *(RowChange(f"DROP TABLE {table}", [()]) for table in LATER),
                RowChange("ALTER TABLE lane DROP COLUMN chain", [()]),
                RowChange("ALTER TABLE mark DROP COLUMN chain", [()]),
                RowChange("ALTER TABLE device RENAME COLUMN public_key TO password_hash", [()]),
                RowChange("PRAGMA user_version = 3", [()]),
            ]
        )
    async with await Registry.open(tmp_path / "hub.db") as registry:
        assert await command_rows.restore(registry) == []
        assert tuple((await registry.fetch("PRAGMA user_version"))[0]) == (SCHEMA_VERSION,)
