"""Commands at the hub: which are sent again to a vehicle, when, and how often."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from backhaul_hub.commands import rows as command_rows
from backhaul_hub.commands.book import AGAIN_BYTES_MAX, AGAIN_S_MAX, AGAIN_S_MIN, CommandBook
from backhaul_hub.commands.command import Command, Key
from backhaul_hub.commands.delivery import BODY_BYTES_MAX
from backhaul_hub.commands.outcome import State
from backhaul_hub.commands.service import CommandShell
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import RegistryError
from tests.hub.command_book import (
    DEVICES,
    DONE,
    KEY,
    NOW,
    RULES,
    Running,
    S,
    arrived,
    booked,
    examined,
    sent,
    vehicle_says,
)
from tests.support.hub_sync import FakeClock
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


def test_what_a_connected_vehicle_has_not_taken_up_is_sent_again() -> None:
    book, command = booked()
    book.sent(command, NOW + 1)
    assert not book.unheard(1e9)  # nobody is connected
    book.link_up("VID-001", 100.0)
    assert not book.unheard(100.0 + AGAIN_S_MIN - 0.1)
    assert book.unheard(100.0 + AGAIN_S_MIN)
    assert book.to_send() is command
    assert not book.sent(command, NOW + 2)  # no news: it was sent before
    assert not book.unheard(100.0 + 3 * AGAIN_S_MIN - 0.1)
    assert book.unheard(100.0 + 3 * AGAIN_S_MIN)
    assert not book.sent(command, NOW + 3)
    book.link_down("VID-001")
    assert not book.unheard(1e9)
    book.link_up("VID-002", 0.0)
    assert not book.unheard(1e9)  # another's
    book.link_up("VID-001", 0.0)
    book.heard(KEY, vehicle_says({"state": "accepted"}))
    assert not book.unheard(1e9)


def sends(book: CommandBook) -> list[str]:
    """Return the ids of what is written into DOWN now."""
    ids = []
    while (command := book.to_send()) is not None:
        ids.append(command.id)
        book.sent(command, NOW + 2)
    return ids


def test_one_round_sends_a_device_its_oldest_again_up_to_a_limit() -> None:
    book = CommandBook(RULES)
    for number in range(4):
        sent(book, f"c{number}", AGAIN_BYTES_MAX // 3)
    book.link_up("VID-001", 0.0)
    assert book.unheard(AGAIN_S_MIN)
    assert sends(book) == ["c0", "c1"]
    book.heard(Key("VID-001", "c0"), vehicle_says({"state": "accepted"}))
    assert book.unheard(1e3)
    assert sends(book) == ["c1", "c2"]


def test_small_ones_count_with_all_that_their_messages_hold() -> None:
    book = CommandBook(RULES)
    one = sum(map(len, sent(book, "c0").down()))
    for number in range(1, AGAIN_BYTES_MAX // one + 10):
        sent(book, f"c{number}")
    book.link_up("VID-001", 0.0)
    assert book.unheard(AGAIN_S_MIN)
    assert len(sends(book)) <= AGAIN_BYTES_MAX // one


def test_the_largest_of_all_is_sent_again_too() -> None:
    book = CommandBook(RULES)
    sent(book, "c0", BODY_BYTES_MAX - 50)
    sent(book, "c1")
    book.link_up("VID-001", 0.0)
    assert book.unheard(AGAIN_S_MIN)
    assert sends(book) == ["c0"]


def rounds(book: CommandBook, until_s: float, from_s: float = 0.0) -> list[float]:
    """Return when something is sent again, looked at once a second."""
    found = []
    for now_s in range(round(from_s), round(until_s)):
        if book.unheard(now_s):
            found.append(now_s - from_s)
            sends(book)
    return found


SCHEDULE = [5.0, 15.0, 35.0, 75.0, 155.0, 315.0, 615.0]


def test_sending_again_comes_to_an_end() -> None:
    book = CommandBook(RULES)
    sent(book, "a")
    book.link_up("VID-001", 0.0)
    assert rounds(book, 20 * AGAIN_S_MAX) == SCHEDULE


def test_a_word_of_another_command_begins_it_anew_once_it_is_over() -> None:
    book = CommandBook(RULES)
    sent(book, "a")
    book.link_up("VID-001", 0.0)
    book.goes_on("VID-001", 1.0)
    assert rounds(book, 5000.0) == SCHEDULE  # while it goes on a word changes nothing
    book.goes_on("VID-001", 5000.0)
    book.goes_on("VID-002", 5000.0)  # nobody is connected
    assert rounds(book, 10_000.0, 5000.0) == SCHEDULE
    book.link_down("VID-001")
    book.goes_on("VID-001", 10_000.0)
    assert rounds(book, 11_000.0, 10_000.0) == []


def test_a_source_set_up_anew_begins_it_anew() -> None:
    book = CommandBook(RULES)
    sent(book, "a")
    book.source_set_up("VID-001", 0.0)  # not connected, as far as is known
    assert rounds(book, 1000.0) == []
    book.link_up("VID-001", 1000.0)
    book.source_set_up("VID-001", 1003.0)  # what is to come in 2 s does not come later
    assert rounds(book, 1100.0, 1000.0) == [5.0, 15.0, 35.0, 75.0]
    book.source_set_up("VID-001", 1100.0)
    assert rounds(book, 5000.0, 1100.0) == SCHEDULE
    book.source_set_up("VID-001", 5000.0)
    assert rounds(book, 10_000.0, 5000.0) == SCHEDULE


def test_what_is_sent_again_goes_before_what_was_published_later() -> None:
    book = CommandBook(RULES)
    sent(book, "stop")
    book.add(arrived(b'{"id": "start"}'))
    book.link_up("VID-001", 0.0)
    assert book.unheard(AGAIN_S_MIN)
    assert sends(book) == ["stop", "start"]


def test_the_shell_tells_the_book_what_calls_for_sending_again() -> None:
    config: Any = SimpleNamespace(commands=RULES, twin=SimpleNamespace(env="prod"))
    clock = FakeClock()
    clock.ns = 0
    shell = CommandShell(config, clock, lambda: DEVICES, lambda _: None)
    sent(shell.book, "a")
    sent(shell.book, "b")
    shell.link_up("VID-001")
    assert rounds(shell.book, 1000.0) == SCHEDULE
    clock.ns = 1000 * S
    accepted = examined("a", {"state": "accepted"})
    shell.on_message(accepted, is_new=True)
    assert rounds(shell.book, 2000.0, 1000.0) == SCHEDULE
    clock.ns = 2000 * S
    shell.on_message(accepted, is_new=False)  # no news
    assert rounds(shell.book, 3000.0, 2000.0) == []
    clock.ns = 3000 * S
    shell.source_set_up("VID-001")
    assert rounds(shell.book, 4000.0, 3000.0) == SCHEDULE


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


async def test_what_ends_while_it_comes_again_leaves_the_queue_all_the_same(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        async with it.running():
            await it.take("a")
            await until(lambda: it.told[-1:] != [] and it.told[-1]["state"] == "sent")

            async def then_it_ends(*args: Any) -> list[Command]:
                known = await find(*args)
                await it.ends("a", DONE)
                await until(lambda: it.acknowledged == ["a"])
                return known

            find = command_rows.find
            with patch.object(command_rows, "find", then_it_ends):
                await it.take("a", "b")
            await until(lambda: it.acknowledged == ["a", "a"])


async def test_what_was_sent_while_hub_db_took_nothing_is_stored_as_sent(tmp_path: Path) -> None:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        it = Running(registry)
        refused: list[Any] = []
        write = registry.write

        async def refuses_once(changes: Any) -> None:
            if not refused and it.down:
                refused.append(changes)
                raise RegistryError("no room")
            await write(changes)

        with patch.object(registry, "write", refuses_once):
            await it.take("a")
            async with it.running():
                await until(lambda: [each["state"] for each in it.told[-1:]] == ["sent"])
        assert refused
        (stored,) = await command_rows.restore(registry)
        assert stored.state == "sent"
