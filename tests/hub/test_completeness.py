"""Certificates as the hub gives them: from what vehicles said, through hub.db, to the command."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from backhaul_codec.assurance.completeness import HOUR_NS, TWO_MACHINES
from backhaul_codec.protocol.words import (
    FORKED,
    SPARE,
    ClockWord,
    EpochWord,
    MarkWord,
    Receipt,
    spare_of,
)
from backhaul_hub.cli.main import cli
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.db.devices import add_device
from backhaul_hub.db.store import Registry
from backhaul_hub.device import Device
from backhaul_hub.lane_records.device_words import MARKS_KEPT_NS, WordBook
from backhaul_hub.lane_records.device_words_store import marks_of, restore
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_lanes, store_read
from backhaul_hub.setup.hub_directory import create_hub
from tests.support.hub_layout import local_layout
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from backhaul_codec.protocol.words import Word

DEVICE = "VID-001"
START_NS = 490_000 * HOUR_NS  # 2025-11-24T16:00Z


class Hub:
    """Continuity and words, told by the test, stored in a hub.db."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.continuity = Continuity()
        self.book = WordBook(self.continuity)

    def arrive(self, lane: str, *seqs: int, epoch: int = 7, hours: float = 0) -> None:
        for seq in seqs:
            self.continuity.arrived(LaneKey(DEVICE, lane, epoch), seq, 10, at(hours))

    def hear(self, seq: int, word: Word, *, epoch: int = 7, stored_ns: int = 0) -> None:
        self.arrive("live", seq, epoch=epoch)
        key = LaneKey(DEVICE, "live", epoch)
        self.book.take(key, seq, word, stored_ns or START_NS + 100 * HOUR_NS)

    def mark(self, hours: float, seq: int, bulk: int, *, epoch: int = 7) -> None:
        lanes = {"live": seq, "bulk": bulk}
        self.hear(seq, MarkWord(at(hours), epoch, lanes, "hour"), epoch=epoch)

    async def store(self) -> None:
        lanes, changes = self.continuity.take_changed(), self.book.take_changes()
        await store_read(self.registry, "UP_00", ReadPosition(), lanes, changes)


def at(hours: float) -> int:
    return START_NS + int(hours * HOUR_NS)


def ask(directory: Path, *arguments: str) -> Result:
    """Ask for the three hours from 16:00 on."""
    times = ["--from", "2025-11-24T16:00", "--to", "2025-11-24T19:00"]
    command = ["completeness", DEVICE, "--dir", str(directory), *times, *arguments]
    return CliRunner().invoke(cli, command, catch_exceptions=False)


@pytest.fixture
async def hub(tmp_path: Path) -> AsyncIterator[Hub]:
    """A hub with one device that has said nothing yet."""
    create_hub(tmp_path, local_layout(free_port(), free_port()))
    async with await Registry.open(tmp_path / "hub.db") as registry:
        await add_device(registry, Device(DEVICE, "ab", "hash", 1))
        yield Hub(registry)


@pytest.fixture
async def directory(tmp_path: Path, hub: Hub) -> Path:
    """A hub that was told of three hours: whole, explained, with a hole."""
    hub.mark(0.5, 1, 0)
    hub.mark(1, 2, 10)
    hub.mark(2, 3, 20)
    hub.mark(3, 4, 30)
    hub.hear(5, Receipt("bulk", 7, 15, 17, "evicted: the ledger is full"))
    hub.arrive("bulk", *range(1, 15), *range(18, 23), *range(24, 31))
    await hub.store()
    return tmp_path


def test_the_command_says_how_each_hour_stands(directory: Path) -> None:
    assert ask(directory).output.splitlines() == [
        "2025-11-24T16:00Z  complete",
        "2025-11-24T17:00Z  explained  bulk 15..17 (epoch 7) will not come: evicted: the ledger is full",
        "2025-11-24T18:00Z  waiting    bulk 23 (epoch 7) missing",
    ]


def test_the_command_says_it_as_json_too(directory: Path) -> None:
    hours = json.loads(ask(directory, "--json").output)["hours"]
    assert [(each["hour"], each["state"]) for each in hours] == [
        ("2025-11-24T16:00Z", "complete"),
        ("2025-11-24T17:00Z", "explained"),
        ("2025-11-24T18:00Z", "waiting"),
    ]
    assert hours[2]["missing"] == [{"lane": "bulk", "epoch": 7, "low": 23, "high": 23}]


def test_the_last_hours_are_shown_where_none_are_named(directory: Path) -> None:
    found = CliRunner().invoke(cli, ["completeness", DEVICE, "--dir", str(directory)])
    lines = found.output.splitlines()
    assert len(lines) == 25
    assert all("waiting    the vehicle has not spoken since this hour" in line for line in lines)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--from", "yesterday"], "is no time such as"),
        (["--to", "2025-11-24T10:00", "--from", "2025-11-24T11:00"], "not 1 to"),
        (["--from", "1970-01-01"], "not 1 to"),
    ],
)
def test_wrong_times_are_refused(directory: Path, arguments: list[str], said: str) -> None:
    found = CliRunner().invoke(cli, ["completeness", DEVICE, "--dir", str(directory), *arguments])
    assert found.exit_code == 2
    assert said in found.output


def test_who_is_no_device_or_no_hub_is_said(
    directory: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with pytest.raises(Exception, match="there is no device VID-009"):
        CliRunner().invoke(
            cli, ["completeness", "VID-009", "--dir", str(directory)], catch_exceptions=False
        )
    elsewhere = tmp_path_factory.mktemp("no-hub")
    with pytest.raises(Exception, match=r"hub\.toml does not exist"):
        CliRunner().invoke(
            cli, ["completeness", DEVICE, "--dir", str(elsewhere)], catch_exceptions=False
        )
    assert not list(elsewhere.iterdir()), "a question makes no database"


async def test_a_ledger_that_went_away_spoils_its_hour_only(tmp_path: Path, hub: Hub) -> None:
    hub.mark(0.5, 1, 0)
    hub.mark(1, 2, 5)
    hub.mark(1.5, 2, 0, epoch=8)
    hub.hear(1, EpochWord(at(1.5), 7, 8, "older copy", {"live": 2, "bulk": 6}), epoch=8)
    hub.mark(2, 3, 4, epoch=8)
    hub.mark(3, 4, 9, epoch=8)
    hub.arrive("bulk", *range(1, 6))
    hub.arrive("bulk", *range(1, 10), epoch=8)
    await hub.store()
    lines = (await asyncio.to_thread(ask, tmp_path)).output.splitlines()
    assert [line.split()[1] for line in lines] == ["complete", "waiting", "complete"]
    assert "bulk 6 (epoch 7) missing" in lines[1]
    hub.hear(5, Receipt("bulk", 7, 6, 6, "gone with the ledger"), epoch=8)
    await hub.store()
    hour = (await asyncio.to_thread(ask, tmp_path)).output.splitlines()[1]
    assert "explained" in hour
    assert "bulk from 7 on (epoch 7) will not come: a new epoch took over" in hour


async def test_marks_are_thinned_to_the_ends_of_an_hour_and_kept_for_a_while(hub: Hub) -> None:
    for number in range(1, 11):
        hub.mark(number / 4, number, number)
        await hub.store()
    kept = sorted(mark.seq for mark in await marks_of(hub.registry, DEVICE))
    assert kept == [1, 3, 4, 7, 8, 10]
    late_ns = at(0) + MARKS_KEPT_NS + HOUR_NS
    hub.hear(11, MarkWord(late_ns, 7, {"live": 11}, "hour"), stored_ns=late_ns)
    await hub.store()
    kept = sorted(mark.seq for mark in await marks_of(hub.registry, DEVICE))
    assert kept == [4, 7, 8, 10, 11]


@pytest.mark.parametrize("off_ns", [6 * 10**9, -MARKS_KEPT_NS - 1])
async def test_a_mark_of_no_believable_time_says_nothing_of_an_hour(hub: Hub, off_ns: int) -> None:
    hub.hear(1, MarkWord(START_NS + off_ns, 7, {"live": 9}, "hour"), stored_ns=START_NS)
    await hub.store()
    assert await marks_of(hub.registry, DEVICE) == []
    # How far the lane went, it says all the same.
    assert hub.continuity.lanes[LaneKey(DEVICE, "live", 7)].owed == [(2, 9)]


async def test_what_was_said_is_known_again_after_a_restart(hub: Hub) -> None:
    hub.arrive("bulk", 1, epoch=8, hours=1)
    hub.arrive("bulk", 1, epoch=7, hours=2)
    clock = ClockWord(at(1), "synced", 5, 7, 3)
    hub.hear(2, clock)
    hub.hear(3, ClockWord(at(0.5), "unset", 0, 0, 3))  # sent again, older
    hub.hear(1, EpochWord(at(1), 7, 8, "gone", {}), epoch=8)
    await hub.store()
    again = Continuity()
    again.restore(await read_lanes(hub.registry))
    book = WordBook(again)
    await restore(hub.registry, book)
    assert again.current(DEVICE)["bulk"][0] == 8
    assert (book.clocks[DEVICE].quality, book.clocks[DEVICE].time_ns) == ("synced", at(1))


@pytest.mark.parametrize(
    ("said", "known"), [("", False), ("", True), (FORKED, False), (SPARE, False)]
)
async def test_hours_in_which_two_machines_wrote_are_never_complete(
    tmp_path: Path, hub: Hub, said: str, *, known: bool
) -> None:
    key = LaneKey(DEVICE, "bulk", 7)
    hub.mark(0.5, 1, 0)
    hub.mark(1, 2, 10)
    hub.mark(2, 3, 20)
    hub.mark(
        3, 4, 20
    )  # of the lane there is nothing in this hour; of the other machine's, who knows
    for seq in range(1, 21):
        hub.continuity.arrived(key, seq, 10, at(2), own=bytes([seq] * 6))
    hub.hear(5, MarkWord(at(4), 7, {"live": 5, "bulk": 20}, "hour"))
    await hub.store()
    assert [
        line.split()[1] for line in (await asyncio.to_thread(ask, tmp_path)).output.splitlines()
    ] == ["complete"] * 3
    if said:  # by the other machine, which found what is here before it sent anything
        over = 7 if said == FORKED else spare_of(7)
        if said == SPARE:
            hub.hear(2, Receipt("bulk", over, 1, 13, SPARE), epoch=8)
            hub.continuity.arrived(LaneKey(DEVICE, "bulk", over), 14, 10, at(4))
        hub.hear(1, EpochWord(at(4), over, 8, said, {"bulk": 14}), epoch=8)
    else:
        for seq in (12, 20):
            hub.continuity.arrived(key, seq, 10, at(3), own=b"other!")
        if known:  # UP holds what the first of them links to
            hub.continuity.fork(key, 12)
    await hub.store()
    lines = (await asyncio.to_thread(ask, tmp_path)).output.splitlines()
    states = [line.split()[1] for line in lines]
    assert states == [("complete" if known else "explained"), "explained", "explained"]
    first = 12 if known else 11
    assert f"bulk {first}..20 (epoch 7) will not come: {TWO_MACHINES}" in lines[1]
    assert "bulk from 21 on" in lines[2]


async def test_a_completeness_report_says_the_hashes_at_its_ends(tmp_path: Path, hub: Hub) -> None:
    for hours, seq, bulk in ((0.5, 1, 0), (1, 2, 10), (2, 3, 20)):
        chain = {"bulk": f"{bulk:012x}"}
        lanes = {"live": seq, "bulk": bulk}
        hub.hear(seq, MarkWord(at(hours), 7, lanes, "hour", chain))
    hub.arrive("bulk", *range(1, 21))
    await hub.store()
    hours = json.loads((await asyncio.to_thread(ask, tmp_path, "--json")).output)["hours"]
    told = [[(each["low_hash"], each["high_hash"]) for each in hour["chain"]] for hour in hours]
    ten, twenty = f"{10:012x}", f"{20:012x}"
    assert told == [[("", ten)], [(ten, twenty)], [(twenty, "")]]
    assert [hours[1]["chain"][0][name] for name in ("lane", "low", "high")] == ["bulk", 10, 20]
    assert hours[2]["chain"][0]["high"] is None
