"""That service goes on after all faults is asked for, and seen where it does not."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import count
from typing import TYPE_CHECKING

import pytest

from tests.chaos.checker import check
from tests.chaos.diary import Entry
from tests.chaos.evidence import heads_of
from tests.chaos.planted import SERVICE
from tests.chaos.planted_words import new_epoch
from tests.chaos.service import ask_until_kept
from tests.chaos.sound_run import HOUR, LIVE, TIMES, VID, Case, frame, happening, head, readings

if TYPE_CHECKING:
    from collections.abc import Callable


class After(Case):
    """A sound run in which one of everything was asked once more, 50 ns into the hour."""

    def __init__(self) -> None:
        super().__init__()
        self.found.healed_ns = HOUR + 50
        self.told.entries += [
            readings(60, 1),
            self.asked("event", event=3),
            self.asked("config", node="vehicle1", value=5.0),
            self.asked("config", node="hub1", value=6.0),
            self.asked("command", id="c9"),
        ]
        self.bulk(frame(4, 60))
        self.event(happening(3, 3))
        self.say(LIVE)
        self.say(LIVE._replace(lane="bulk"))
        points = [head(2.0), head(5.0) | {"node": "vehicle1"}, head(6.0) | {"node": "hub1"}]
        self.found.heads = {VID: (heads_of(points), heads_of(points))}
        done = {"id": "c9", "device": VID, "name": "once", "state": "done", **TIMES}
        self.found.commands["c9"] = done
        self.found.starts["c9"] = 1
        self.table()

    @staticmethod
    def asked(what: str, **body: object) -> Entry:
        return Entry(what, VID, HOUR + 60, body, "kept", HOUR + 70)


def refused(what: str) -> Callable[[After], None]:
    def plant(case: After) -> None:
        for entry in case.told.entries:
            if entry.asked_ns >= case.found.healed_ns and entry.what == what:
                entry.word = "unknown"

    return plant


def reading_gone(case: After) -> None:
    case.told.entries.append(readings(61, 1))


def event_gone(case: After) -> None:
    case.told.entries.append(case.asked("event", event=4))


def write_gone(case: After) -> None:
    case.told.entries.append(case.asked("config", node="hub1", value=7.0))


def not_at(case: After, end: int) -> None:
    both = [dict(heads) for heads in case.found.heads[VID]]
    del both[end]["", "hub1", "number", ""]
    case.found.heads[VID] = both[0], both[1]


def write_not_at_the_hub(case: After) -> None:
    not_at(case, 0)


def write_not_on_the_vehicle(case: After) -> None:
    not_at(case, 1)


def command_undone(case: After) -> None:
    case.found.commands["c9"] |= {"state": "interrupted", "error": "sent before"}


def test_one_of_everything_is_taken_and_arrives() -> None:
    case = After()
    assert check(case.told, case.found) == []


@pytest.mark.parametrize("what", ["readings", "event", "config", "command"])
def test_what_is_never_taken_again_is_seen(what: str) -> None:
    case = After()
    refused(what)(case)
    assert SERVICE in case.broken()


@pytest.mark.parametrize(
    "plant",
    [
        reading_gone,
        event_gone,
        write_gone,
        write_not_at_the_hub,
        write_not_on_the_vehicle,
        command_undone,
    ],
)
def test_what_is_taken_and_does_not_arrive_is_seen(plant: Callable[[After], None]) -> None:
    case = After()
    plant(case)
    assert SERVICE in case.broken()


def test_a_new_epoch_may_not_know_of_a_command_sent_before_it_began() -> None:
    case = After()
    command_undone(case)
    new_epoch(case)
    assert check(case.told, case.found) == []


async def test_each_is_asked_until_it_is_kept_or_given_up() -> None:
    asked = count(1)

    async def second() -> bool:
        return next(asked) == 2

    async def never() -> bool:
        return False

    await ask_until_kept([second], wait_s=60)
    assert next(asked) == 3
    await ask_until_kept([never], wait_s=0)


async def test_who_loses_a_cancellation_is_not_asked_again_for_ever() -> None:
    asked = count()

    async def deaf() -> bool:
        if next(asked):
            return True
        with suppress(asyncio.CancelledError):
            await asyncio.Event().wait()
        return False

    await ask_until_kept([deaf], wait_s=0.01)
    assert next(asked) == 1
