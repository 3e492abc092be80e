"""Answers about the past, from real tables and a real server: each reading once, wherever it stands."""

from __future__ import annotations

import random
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_codec import Point, chain, encode_bundle
from backhaul_codec.subjects import BUNDLE_SUBJECT, stored_dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary, pack_with
from backhaul_codec.wire.envelope import NO_LINK, unseal
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.decode.series import OneSeries
from backhaul_spark.errors import QuestionError
from backhaul_spark.jobs.maintain import Keeping, Maintenance
from backhaul_spark.nats.direct_get import Reader
from backhaul_spark.serve import answers as answers_module
from backhaul_spark.serve.plan import DAY_US
from backhaul_spark.serve.series_rows import AnswerTime
from tests.support.past_world import HOUR_US, T0_US, PastWorld, readings
from tests.support.spark_fleet import HOUR_NS, Fleet
from tests.support.spark_frames import T0_NS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from backhaul_spark.nats.stored import Stored
    from tests.support.spark_server import HubServer

pytestmark = pytest.mark.nats


@pytest.fixture
def world(tmp_path: Path, hub_server: HubServer) -> PastWorld:
    return PastWorld(tmp_path, hub_server.options, hub_server.put_raw)


def test_a_fresh_hub_is_answered_from_up_alone(world: PastWorld) -> None:
    assert (world.ask()["t_us"], world.ask()["notes"]) == ([], [])
    world.frame((0, 1.0), (1, 2.0))
    world.frame((0, 7.0), device="VID-002")
    assert readings(world.ask()) == [(0, 1.0), (1, 2.0)]
    assert world.ask()["complete_to_us"] is None


def test_what_stands_in_the_table_and_in_up_is_told_once(world: PastWorld) -> None:
    first = world.frame((0, 1.0), (1, 2.0))
    world.frame((2, 3.0))
    world.ingest(1)
    assert readings(world.ask()) == [(0, 1.0), (1, 2.0), (2, 3.0)]
    world.put("up.VID-001.f.battery", first)  # sent again
    late = world.frame((0.5, 1.5), seq=9)  # of an earlier time, later than others
    world.put("up.VID-001.f.battery", late)
    expected = [(0, 1.0), (0.5, 1.5), (1, 2.0), (2, 3.0)]
    assert readings(world.ask()) == expected
    world.ingest()
    assert readings(world.ask()) == expected
    world.put("up.VID-001.f.battery", late)
    assert readings(world.ask()) == expected


def test_ranges_include_their_beginning_and_not_their_end(world: PastWorld) -> None:
    world.frame((0, 1.0), (1, 2.0), (2, 3.0))
    assert readings(world.ask(1, 2)) == [(1, 2.0)]
    world.ingest()
    assert readings(world.ask(1, 2)) == [(1, 2.0)]


def test_rollups_points_and_up_make_one_series_and_no_peak_is_lost(world: PastWorld) -> None:
    hours = 30
    for hour in range(hours):
        world.frame(*((hour * 3600 + s * 60, float(s)) for s in range(60)))
    world.frame((3600 * 5 + 61, 1000.0))
    world.ingest()
    world.rollup()
    world.frame((3600 * 7 + 62, -1000.0))  # late, in a window that is summed up
    world.frame((3600 * hours, 5.0))
    world.ingest()
    world.frame((3600 * 9 + 63, 2000.0), (3600 * hours + 60, 6.0))
    for points_max, level in ((1500, "minute"), (20, "hour")):
        said = world.ask(0, 3600 * (hours + 1), points_max=points_max)
        assert said["level"] == level
        assert sum(said["n"]) == 60 * hours + 5
        assert (min(said["min"]), max(said["max"])) == (-1000.0, 2000.0)
        assert len(said["t_us"]) <= points_max
        bucket = next(
            place
            for place, at in enumerate(said["t_us"])
            if at + said["width_us"] > T0_US + 5 * HOUR_US
        )
        assert said["max"][bucket] == 1000.0 or said["max"][bucket + 1] == 1000.0
    before = world.ask(0, 3600 * (hours + 1), points_max=20)
    world.ingest()
    world.rollup()
    again = world.ask(0, 3600 * (hours + 1), points_max=20)
    assert again == before, "once all is summed up it is the same"
    days = world.ask(-40 * 86_400, 10 * 86_400, points_max=10)
    assert (days["level"], sum(days["n"])) == ("day", 60 * hours + 5)


def test_a_state_value_that_came_twice_is_one_reading(world: PastWorld) -> None:
    world.alone(10, 1.0)
    world.frame((20, 2.0))
    world.ingest()
    world.rollup()
    world.alone(10, 1.0)  # as an older agent sends its heads again
    world.alone(20, 2.0)  # as telemetry and as state
    world.alone(30, 3.0)
    for _ in range(2):
        assert readings(world.ask()) == [(10, 1.0), (20, 2.0), (30, 3.0)]
        assert sum(world.ask(0, 40 * 3600, points_max=100)["n"]) == 3
        world.ingest()


def test_texts_are_told_as_runs(world: PastWorld) -> None:
    world.frame((0, "idle"), (1, "idle"), (2, "idle"), (3, "drive"), type_="mode")
    world.ingest()
    world.frame((4, "drive"), (5, "idle"), type_="mode")
    said = world.ask(type_="mode")
    runs = [((begin - T0_US) / 1e6, (end - T0_US) / 1e6, text) for begin, end, text in said["runs"]]
    assert runs == [(0, 2, "idle"), (3, 4, "drive"), (5, 5, "idle")]
    assert (said["kind"], said["t_us"], said["runs_more"]) == ("text", [], 0)
    world.rollup()
    said = world.ask(0, 40 * 3600, points_max=100, type_="mode")
    assert [text for _, _, text in said["runs"]] == ["idle", "drive", "idle"]
    assert any("inside" in note for note in said["notes"])


def test_what_waits_for_its_dictionary_is_named_and_told_once_it_has_come(
    world: PastWorld, hub_server: HubServer
) -> None:
    hub_server.make_stream("DICT", subjects="dict.>")
    points = [Point("battery", name, T0_NS, 7.0) for name in ("soc", "temperature", "voltage")]
    bundle = encode_bundle(points, epoch=0, seq=0)
    dictionary = unseal(bundle)[1]
    packed = pack_with(chain(bundle, epoch=1, seq=1, link=NO_LINK), dictionary)
    world.put(f"up.VID-001.{BUNDLE_SUBJECT}", packed)
    for _ in range(2):
        said = world.ask()
        assert (said["t_us"], said["aside"]) == ([], 1)
        world.ingest()
    carrier = chain(encode_dictionary(dictionary), epoch=1, seq=2, link=NO_LINK)
    hub_server.put_raw(stored_dictionary_subject("VID-001", digest_of(dictionary)), carrier)
    said = world.ask()
    assert (readings(said), said["aside"]) == ([(0, 7.0)], 0)


def test_a_stream_that_went_back_is_read_from_its_start(
    world: PastWorld, hub_server: HubServer
) -> None:
    world.frame((0, 1.0))
    kept = world.frame((1, 2.0))
    world.ingest()
    hub_server.delete_stream()
    hub_server.make_stream()
    world.put("up.VID-001.f.battery", kept)
    world.frame((2, 3.0))
    assert readings(world.ask()) == [(0, 1.0), (1, 2.0), (2, 3.0)]


def test_what_an_earlier_answer_read_of_up_is_not_read_again(
    world: PastWorld, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[int, int]] = []
    messages = 0
    read = Reader.read_subject

    def counted(reader: Reader, stream: str, lo: int, hi: int, subject: str) -> Iterator[Stored]:
        nonlocal messages
        asked.append((lo, hi))
        for part in read(reader, stream, lo, hi, subject):
            messages += len(part.seqs)
            yield part

    monkeypatch.setattr(Reader, "read_subject", counted)
    said = [(at, float(at)) for at in range(40)]
    for at, value in said:
        world.frame((at, value))
    assert readings(world.ask()) == said
    assert (asked, messages) == ([(1, 40)], 40)
    for at in range(40, 80):  # each time a message more, and another device's
        said.append((at, float(at)))
        world.frame(said[-1])
        world.frame((0, 7.0), device="VID-002")
        assert readings(world.ask()) == said
    assert (asked[-1], messages) == ((117, 120), 40 + 2 * 40)
    world.ingest(60)
    assert readings(world.ask()) == said
    world.ingest()
    asked.clear()
    assert readings(world.ask()) == said
    messages = 0
    said.append((90, 90.0))
    world.frame(said[-1])
    assert readings(world.ask()) == said
    assert messages <= 2, "the message of ingest's mark, and the new one"
    # A store that went back, and has as many messages again.
    hub_server.delete_stream()
    hub_server.make_stream()
    world.frame((91, 91.0), seq=500)
    assert readings(world.ask()) == [*said[:-1], (91, 91.0)]


def test_days_whose_points_were_taken_out_are_answered_by_the_minute(world: PastWorld) -> None:
    world.frame((0, 1.0), (1, 5.0))
    world.ingest()
    world.rollup()
    Maintenance(str(world.root), SYSTEM_CLOCK).run(Keeping(points_days=1))
    said = world.ask()
    assert (said["level"], said["n"], said["max"]) == ("minute", [2], [5.0])


def test_rollups_that_cannot_be_read_are_named_and_points_stand_in(world: PastWorld) -> None:
    world.frame((0, 1.0), (1, 5.0))
    world.ingest()
    world.rollup()
    [file] = (world.root / "rollups" / "width=1h").rglob("*.parquet")
    file.write_bytes(b"no parquet")
    said = world.ask(0, 40 * 3600, points_max=10)
    assert (said["level"], said["n"], said["max"]) == ("point", [1, 1], [1.0, 5.0])
    assert "rollups cannot be read" in said["notes"][0]
    file.unlink()
    assert "rollups cannot be read" in world.ask(0, 40 * 3600, points_max=10)["notes"][0]
    for log in (world.root / "rollups" / "_delta_log").glob("*.json"):
        log.write_text("no JSON")
    fresh = PastWorld(world.root.parent, {"servers": str(world.endpoint)}, None)
    fresh.answers._tail = world.answers._tail
    said = fresh.ask(0, 40 * 3600, points_max=10)
    assert (said["n"], len(said["notes"])) == ([1, 1], 1)


def test_gaps_have_the_reasons_of_their_hours(world: PastWorld) -> None:
    fleet = Fleet(world.root, T0_NS + 6 * HOUR_NS)
    fleet.mark(0, 0)
    for hour, seq in ((0, 1), (1, 2), (2, 2), (3, 4)):
        if hour == 3:
            fleet.skip(1)
        if hour != 2:
            fleet.send(*((hour * HOUR_NS + minute * 60 * 10**9, 1.0) for minute in range(60)))
        fleet.mark(hour + 1, seq)
    fleet.report_hours()
    said = world.ask(0, 4 * 3600)
    gaps = [
        ((begin - T0_US) / HOUR_US, (end - T0_US) / HOUR_US, why)
        for begin, end, why in said["gaps"]
    ]
    assert gaps == [(119 / 60, 3.0, "silent"), (3.0, 4.0, "waiting")]
    assert said["complete_to_us"] == T0_US + 3 * HOUR_US


def test_questions_beside_ingest_and_rollup_have_each_reading_once(world: PastWorld) -> None:
    """Frames late and early, some sent again, while three threads ask in all widths."""
    dice = random.Random(7)
    said: list[tuple[float, float]] = []  # on its way to UP, or there
    there = [0]
    bodies: list[bytes] = []
    stop = threading.Event()

    def ask(points_max: int) -> int:
        asked = 0
        while not stop.is_set() or not asked:
            known, before = there[0], len(said)
            answer = world.ask(0, 30 * 3600, points_max=points_max)
            asked += 1
            assert known <= sum(answer["n"]) <= len(said)
            if known == before == len(said) and said:
                values = [value for _, value in said]
                assert (min(answer["min"]), max(answer["max"])) == (min(values), max(values))
        return asked

    with ThreadPoolExecutor(3) as threads:
        asking = [threads.submit(ask, points_max) for points_max in (4000, 600, 20)]
        try:
            for step in range(24):
                start = dice.uniform(0, 29) * 3600
                rows = [(start + at, dice.gauss(0, 50)) for at in range(dice.randint(1, 20))]
                said += rows
                bodies.append(world.frame(*rows))
                there[0] = len(said)
                if step % 3 == 0:
                    world.put("up.VID-001.f.battery", dice.choice(bodies))
                if step % 4 == 0:
                    world.ingest(dice.choice([None, 1]))
                if step % 7 == 6:
                    world.rollup()
        finally:
            stop.set()
        assert all(each.result() for each in asking)
    for points_max in (4000, 600, 20):
        answer = world.ask(0, 30 * 3600, points_max=points_max)
        assert sum(answer["n"]) == len(said)
        for place, at in enumerate(answer["t_us"]):
            end = at + max(answer["width_us"], 1)
            here = [
                value for when, value in said if at <= (T0_NS + round(when * 1e9)) // 1000 < end
            ]
            assert (len(here), min(here), max(here)) == tuple(
                answer[name][place] for name in ("n", "min", "max")
            )


def test_a_range_that_would_read_too_much_is_answered_by_minutes_or_refused(
    world: PastWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers_module, "SCAN_ROWS_MAX", 3)
    world.frame(*((s, float(s)) for s in range(5)))
    world.ingest()
    with pytest.raises(QuestionError, match="without rollups 5 rows") as refused:
        world.ask(0, 400 * 86_400)
    assert "backhaul-spark rollup" in refused.value.hint
    world.rollup()
    assert world.ask()["level"] == "minute"
    assert world.ask(0, 400 * 86_400)["n"] == [5]
    with pytest.raises(QuestionError, match="is not before"):
        world.ask(1, 1)
    with pytest.raises(QuestionError, match="no reading can be"):
        world.ask(-2e9, -1.9e9)


def test_more_than_an_answer_reads_of_up_is_said(
    world: PastWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backhaul_spark.serve.tail.MESSAGES_MAX", 1)
    monkeypatch.setattr("backhaul_spark.nats.direct_get.BATCH_MESSAGES", 1)
    world.frame((0, 1.0))
    world.frame((1, 2.0))
    said = world.ask()
    assert readings(said) == [(0, 1.0)]
    assert "ingest is far behind" in said["notes"][0]
    world.ingest(1)
    assert readings(world.ask()) == [(0, 1.0), (1, 2.0)]


def test_of_a_long_backlog_old_messages_are_passed_over_for_a_new_time(
    world: PastWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reading is stamped a day after it was stored at the latest."""
    looked: list[int | None] = []
    found = Reader.first_since

    def first_since(reader: Reader, stream: str, time_us: int) -> int | None:
        looked.append(found(reader, stream, time_us))
        return looked[-1]

    monkeypatch.setattr(Reader, "first_since", first_since)
    monkeypatch.setattr("backhaul_spark.serve.tail.LOOK", 0)
    world.frame((0, 1.0))
    world.frame((1, 2.0))
    assert readings(world.ask()) == [(0, 1.0), (1, 2.0)]
    assert looked == [1], "both were stored after that time"
    now_us = SYSTEM_CLOCK.now_ns() // 1000
    series = OneSeries("VID-001", "battery", "soc")
    view = world.answers._tables.view("VID-001")
    budget = AnswerTime(SYSTEM_CLOCK, 60.0)
    world.answers._tail.read(series, view, budget, now_us + 3 * DAY_US)
    assert looked == [1, None]
    soon = world.answers._tail.read(series, view, budget, now_us)
    assert looked == [1, None, 1]
    assert sum(batch.num_rows for batch in soon.batches) == 2, "its clock may be ahead by a day"
    asked = Reader.read_subject

    def since_the_second(reader: Reader, *where: Any) -> Iterator[Stored]:
        assert where[1] == 2
        return asked(reader, *where)

    monkeypatch.setattr(Reader, "first_since", lambda *_: 2)
    monkeypatch.setattr(Reader, "read_subject", since_the_second)
    assert readings(world.ask()) == [(1, 2.0)]


def test_a_checkpoint_that_is_not_found_costs_time_and_no_reading(world: PastWorld) -> None:
    world.frame((0, 1.0))
    world.ingest()
    (world.checkpoint / "metadata").unlink()
    world.frame((1, 2.0))
    said = world.ask()
    assert readings(said) == [(0, 1.0), (1, 2.0)]
    assert "--checkpoint" in said["notes"][0]
