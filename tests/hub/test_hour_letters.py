"""Hours of all devices, answered from what was judged before: the same letters as judged anew, and only where something changed."""

from __future__ import annotations

import asyncio
import random
from typing import TYPE_CHECKING, Any

import pytest_asyncio

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.protocol.words import EpochWord, MarkWord, Receipt
from backhaul_codec.ranges import RangeSet
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.imported_rows import Source, add_hours, put
from backhaul_hub.lane_records.lane_rows import ReadPosition, store_read
from backhaul_hub.people.hour_letters import WINDOWS_MAX, HourLetters
from backhaul_hub.people.hours import HourServices
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.scope import Scope
from backhaul_hub.questions import HoursQuestion
from backhaul_hub.sync.heads import FleetHeads
from backhaul_hub.sync.tree import FleetTree

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_codec.protocol.words import Word

DEVICES = ("VID-1", "VID-2", "VID-3")
FIRST = 490_000
QUESTION = HoursQuestion(FIRST * HOUR_NS, (FIRST + 6) * HOUR_NS)


class Fleet:
    """What vehicles say, as the reader of UP takes it in; and who asks."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.continuity = Continuity()
        self.words = WordBook(self.continuity)
        self.devices = list(DEVICES)
        self.tree = FleetTree(FleetHeads(), lambda: self.devices)
        self.services = self.fresh()

    def fresh(self) -> HourServices:
        return HourServices(self.registry, self.continuity, self.words, HourLetters("here"))

    async def ask(self, since: str = "", services: HourServices | None = None) -> dict[str, Any]:
        question = HoursQuestion(QUESTION.from_ns, QUESTION.to_ns, since=since)
        who = Scope(Person("olga", "fleet", May.READ), self.tree, lambda: self.devices)
        return await (services or self.services).hours(who, question)

    def arrive(self, device: str, seq: int, *, epoch: int = 7, at: float = 0) -> None:
        stored_ns = int((FIRST + at) * HOUR_NS)
        self.continuity.arrived(LaneKey(device, "bulk", epoch), seq, 10, stored_ns)

    def say(self, device: str, seq: int, word: Word, *, epoch: int = 7, at: float = 0) -> None:
        stored_ns = int((FIRST + at) * HOUR_NS)
        key = LaneKey(device, "live", epoch)
        self.continuity.arrived(key, seq, 10, stored_ns)
        self.words.take(key, seq, word, stored_ns)

    def mark(self, device: str, at: float, seq: int, bulk: int, *, epoch: int = 7) -> None:
        word = MarkWord(int((FIRST + at) * HOUR_NS), epoch, {"live": seq, "bulk": bulk}, "hour")
        self.say(device, seq, word, epoch=epoch, at=at)

    async def store(self) -> None:
        lanes = self.continuity.take_changed()
        await store_read(self.registry, "UP_00", ReadPosition(), lanes, self.words.take_changes())


@pytest_asyncio.fixture
async def fleet(tmp_path: Path) -> AsyncIterator[Fleet]:
    async with await Registry.open(tmp_path / "hub.db") as registry:
        for number, device in enumerate(DEVICES):
            await add_device(registry, Device(device, f"t{number}", f"U{number}", 1))
        yield Fleet(registry)


async def test_what_did_not_change_is_neither_judged_nor_told_again(fleet: Fleet) -> None:
    for device in DEVICES:
        fleet.mark(device, 0.1, 1, 0)
        fleet.arrive(device, 1)
        fleet.mark(device, 1.1, 2, 1)
    await fleet.store()
    first = await fleet.ask()
    assert [each["hours"][:2] for each in first["devices"]] == ["cs"] * 3
    looked: list[str] = []
    fetch = fleet.registry.fetch

    async def seen(query: str, values: Any = ()) -> Any:
        looked.append(query)
        return await fetch(query, values)

    fleet.registry.fetch = seen  # type: ignore[method-assign]
    for seq in range(2, 100):  # a vehicle that sends, and that has told of nothing new
        fleet.arrive("VID-1", seq)
    assert (await fleet.ask())["devices"] == first["devices"]
    told = await fleet.ask(since=(await fleet.ask())["known"])
    assert told["devices"] == []
    assert not any(" mark " in query for query in looked)
    fleet.arrive("VID-2", 5)  # and one that lacks something
    fleet.mark("VID-2", 2.1, 3, 5)
    await fleet.store()
    told = await fleet.ask(since=told["known"])
    assert [(each["device"], each["hours"][:3]) for each in told["devices"]] == [("VID-2", "cww")]
    assert sum(" mark " in query for query in looked) == 1


async def test_one_who_sees_other_devices_or_another_hub_is_told_all(fleet: Fleet) -> None:
    known = (await fleet.ask())["known"]
    await fleet.ask()
    for other in ("", "elsewhere.0.0", known.replace("here", "there"), f"{known}x"):
        assert len((await fleet.ask(since=other))["devices"]) == 3, other
    fleet.devices.remove("VID-2")
    assert len((await fleet.ask(since=known))["devices"]) == 2


async def test_a_word_that_hub_db_does_not_have_yet_is_waited_for(fleet: Fleet) -> None:
    fleet.mark("VID-1", 0.1, 1, 0)
    await fleet.store()
    await fleet.ask()
    async with fleet.registry.turn:
        fleet.mark("VID-1", 1.1, 2, 0)
        asked = asyncio.create_task(fleet.ask())
        for _ in range(20):  # it could have looked at all there is meanwhile
            await fleet.registry.fetch("SELECT 1")
        # The reader of UP stores what it was told before it gives up its turn.
        for change in fleet.words.take_changes():
            if change.rows:
                await fleet.registry.write([change])
    assert (await asked)["devices"][0]["hours"][0] == "c"


async def test_letters_are_those_that_are_judged_anew(fleet: Fleet) -> None:
    draw = random.Random(18)
    at = dict.fromkeys(DEVICES, 0.1)
    seqs = {device: [0, 0] for device in DEVICES}
    epochs = dict.fromkeys(DEVICES, 7)
    known = ""
    shown: dict[str, str] = {}
    for step in range(150):
        device = draw.choice(DEVICES)
        live, bulk = seqs[device]
        at[device] = min(5.9, at[device] + draw.random() / 10)
        match draw.randrange(8):
            case 0 | 1:
                seqs[device] = [live + 1, bulk]
                fleet.mark(device, at[device], live + 1, bulk, epoch=epochs[device])
            case 2 | 3:
                bulk += draw.choice((1, 1, 1, 3))
                seqs[device] = [live, bulk]
                fleet.arrive(device, bulk, epoch=epochs[device], at=at[device])
            case 4:
                fleet.arrive(device, draw.randint(1, bulk + 1), epoch=epochs[device])
            case 5 if bulk:
                low = draw.randint(1, bulk)
                word = Receipt("bulk", epochs[device], low, low, "evicted")
                seqs[device] = [live + 1, bulk]
                fleet.say(device, live + 1, word, epoch=epochs[device], at=at[device])
            case 6 if step % 5 == 0:
                old, epochs[device] = epochs[device], epochs[device] + 1
                now_ns = int((FIRST + at[device]) * HOUR_NS)
                over = EpochWord(old, old + 1, now_ns, "lost", {"live": live, "bulk": bulk})
                seqs[device] = [1, 0]
                fleet.say(device, 1, over, epoch=old + 1, at=at[device])
            case 7:
                if step % 2:
                    hour = FIRST + draw.randrange(6)
                    source = Source(f"s{step}", device, "f", 9, 9, updated_ns=step)
                    await fleet.registry.write([*put(source), add_hours(device, {hour: 3})])
                else:
                    key = LaneKey(device, "bulk", epochs[device])
                    if key in fleet.continuity.lanes and bulk:
                        fleet.continuity.restate(key, RangeSet([(1, draw.randint(1, bulk))]))
        await fleet.store()
        told = await fleet.ask(since=known)
        known = told["known"]
        shown |= {each["device"]: each["hours"] for each in told["devices"]}
        fresh = await fleet.ask(services=fleet.fresh())
        assert shown == {each["device"]: each["hours"] for each in fresh["devices"]}, step
    assert len({letter for letters in shown.values() for letter in letters}) > 2


def test_few_stretches_are_kept() -> None:
    letters = HourLetters("here")
    first = letters.window(0, 1)
    assert letters.window(0, 1) is first
    for number in range(WINDOWS_MAX - 1):
        letters.window(number, 9)
        letters.window(0, 1)
    assert letters.window(0, 1) is first
    for number in range(WINDOWS_MAX):
        letters.window(number, 9)
    assert letters.window(0, 1) is not first
