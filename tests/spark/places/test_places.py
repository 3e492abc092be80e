"""The tables trips, stops and fences: restated by late data, killed at any step, and the same from scratch."""

from __future__ import annotations

import random
import subprocess
import sys
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.errors import TablesBusyError
from backhaul_spark.jobs.maintain import Keeping, Maintenance
from backhaul_spark.places import job
from backhaul_spark.places.day import day_of_places
from backhaul_spark.places.job import Places, PlacesRun
from backhaul_spark.places.stored import RUN_APP
from backhaul_spark.rollup.rollup import run_here
from backhaul_spark.tables.schemas import TRIPS_TABLE
from backhaul_spark.tables.superseded import rows_known_at
from tests.support.places_world import ROW_TABLES, At, PlacesWorld, at, drive, stand

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.slow

STEPS = (
    *("touched", "folded", "claimed"),
    *(step for spec in ROW_TABLES for step in (f"{spec.name} superseded", spec.name)),
    "states",
)


def a_day(from_s: float = 0) -> list[At]:
    """Two trips of 3 km past the fences, with stops of half an hour, over three hours."""
    rows = [
        *stand(0, 3000, 0, 30),
        *drive(3000, 3600, 0, 3000, 30),
        *stand(3600, 6000, 3000, 30),
        *drive(6000, 6600, 3000, 0, 30),
        *stand(6600, 9000, 0, 30),
    ]
    return [each._replace(s=each.s + from_s) for each in rows]


def is_as_from_scratch(world: PlacesWorld, root: Path) -> bool:
    found, expected = world.said(), world.from_scratch(root).said()
    assert found["trips"]
    return found == expected


def test_what_comes_in_the_order_of_time_closes_what_was_open(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    day = a_day()
    world.send(day[:300])
    first = world.run()
    assert [row["ended"] for row in world.rows("trips")] == ["stop"]
    world.send(day[300:])
    second = world.run()
    assert second.after_ingest == first.ingest
    assert [(row["ended"], row["version"]) for row in world.rows("trips")] == [("stop", 1)] * 2
    stops = [(row["ended"], row["version"], row["closed"] is None) for row in world.rows("stops")]
    assert stops == [("trip", 1, False), ("trip", 2, False), ("open", 1, True)]
    crossings = [(row["fence"], row["kind"]) for row in world.rows("fences")]
    assert crossings == [
        *[("depot", "entered"), ("depot", "dwelt"), ("depot", "left")],
        *[("road", "entered"), ("road", "left")] * 2,
        *[("depot", "entered"), ("depot", "dwelt")],
    ]
    assert next(row["before_ns"] for row in world.rows("fences")) is None
    assert is_as_from_scratch(world, tmp_path / "b")
    assert world.run() == PlacesRun(second.ingest, second.ingest)


def test_late_positions_restate_what_they_change_and_nothing_else(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    day = a_day()
    world.send(a_day(), device="VID-002")
    late = [each for each in day if 3200 <= each.s < 4500]
    world.send([each for each in day if each not in late])
    world.run()
    before = {name: world.rows(name) for name in ("trips", "stops", "fences")}
    then = datetime.fromtimestamp(SYSTEM_CLOCK.now_ns() / 1e9, UTC)
    gapped = [row for row in before["trips"] if row["device"] == "VID-001"]
    assert [row["ended"] for row in gapped] == ["gap", "stop"]
    world.send(late)
    world.run()
    whole = [row for row in world.rows("trips") if row["device"] == "VID-001"]
    assert [(row["ended"], row["version"]) for row in whole] == [("stop", 2), ("stop", 1)]
    others = [row for row in world.rows("trips") if row["device"] == "VID-002"]
    assert others == [row for row in before["trips"] if row["device"] == "VID-002"]
    assert is_as_from_scratch(world, tmp_path / "b")
    known = rows_known_at(world.root, TRIPS_TABLE, RUN_APP, "restated_at", then).sort_by(
        [("device", "ascending"), ("start_ns", "ascending")]
    )
    assert known.select(TRIPS_TABLE.schema.names).to_pylist() == before["trips"]


def test_a_trip_that_late_data_take_away_is_withdrawn_and_kept_as_it_was(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    # A jump that lasts is believed while nothing says that the vehicle was elsewhere.
    world.send([*stand(0, 600, 0), *drive(700, 1300, 1000, 2000), *stand(2000, 2300, 0)])
    world.run()
    assert len(world.rows("trips")) == 1
    world.send(stand(600.5, 2000, 0, 1), device="VID-001")
    done = world.run()
    assert (world.rows("trips"), done.withdrawn > 0) == ([], True)
    assert [row["ended"] for row in world.rows("trips_superseded")] == ["gap"]
    anew = world.from_scratch(tmp_path / "b")
    assert world.said() == anew.said()


def test_a_change_goes_as_far_as_it_matters(tmp_path: Path) -> None:
    """A stop over seven hours whose beginning comes late: each hour's state is another one."""
    world = PlacesWorld(tmp_path / "a")
    world.send([*stand(1000, 25_000, 0, 60), *drive(25_000, 25_600, 0, 3000)])
    world.run()
    states = {row["hour"]: row["state"] for row in world.rows("place_states")}
    world.send(stand(0, 1000, 0, 60))
    world.run()
    later = {row["hour"]: row["state"] for row in world.rows("place_states")}
    assert all(later[hour] != state for hour, state in sorted(states.items())[:6])
    assert is_as_from_scratch(world, tmp_path / "b")


def in_pieces(dice: random.Random, readings: list[At], pieces: int) -> list[list[At]]:
    """Cut readings into pieces: stretches of time, and readings from everywhere."""
    some = [each for each in readings if dice.random() < 0.1]
    rest = [each for each in readings if each not in some]
    edges = sorted(dice.sample(range(1, len(rest)), pieces - 1))
    parts = [rest[a:b] for a, b in zip([0, *edges], [*edges, len(rest)], strict=True)]
    parts.append(some)
    dice.shuffle(parts)
    return [part for part in parts if part]


@settings(
    max_examples=4,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(seed=st.integers(0, 1 << 30), pieces=st.integers(2, 4), every=st.integers(1, 3))
def test_however_positions_are_cut_and_however_late_they_are_the_tables_are_the_same(
    tmp_path_factory: pytest.TempPathFactory, seed: int, pieces: int, every: int
) -> None:
    dice, root = random.Random(seed), tmp_path_factory.mktemp("cut")
    world = PlacesWorld(root / "a")
    sent = []
    for device in ("VID-001", "VID-002"):
        day = [*a_day(dice.randrange(3000)), *at(dice.randrange(9000) + 0.5, 80_000)]
        sent += [(device, part) for part in in_pieces(dice, day, pieces)]
    dice.shuffle(sent)
    for number, (device, part) in enumerate(sent):
        world.send(part, device)
        if number % every == 0:
            world.run()
    world.run()
    assert is_as_from_scratch(world, root / "b")


def test_killed_at_any_step_the_next_run_ends_the_same(tmp_path: Path) -> None:
    day = a_day()
    late = [each for each in day if 3200 <= each.s < 4500]
    for number, step in enumerate(STEPS):
        world = PlacesWorld(tmp_path / str(number))
        world.send([each for each in day if each not in late])
        world.run()
        world.send(late[: len(late) // 2])
        with pytest.raises(KilledError):
            world.run(_die_after(step))
        # What comes then may take the change back that the killed run was about to make.
        world.send(late[len(late) // 2 :])
        world.run()
        assert is_as_from_scratch(world, tmp_path / f"{number}-anew"), step
        # Every former row was superseded once.
        old = world.rows("stops_superseded")
        assert len(
            {(row["device"], row["start_ns"], row["version"], row["superseded_by"]) for row in old}
        ) == len(old)


def test_what_a_killed_run_changed_and_nothing_changes_any_more_is_taken_back(
    tmp_path: Path,
) -> None:
    """The first hour's state becomes what it was: that alone would leave the hours after it as the killed run did."""
    world = PlacesWorld(tmp_path / "a")
    way = [*drive(0, 600, 0, 3000), *stand(600, 3000, 3000, 60), *stand(3700, 9000, 3000, 60)]
    world.send(way)
    world.run()
    before = world.said()
    elsewhere = [each for s in (3060, 3130, 3200) for each in at(s, 500_000)]
    world.send(elsewhere)
    with pytest.raises(KilledError):
        world.run(_die_after("fences"))
    assert world.said() != before
    # Of two readings with one time the later one counts, and 0, 0 is no place.
    world.send(each._replace(value=0.0) for each in elsewhere)
    world.run()
    assert world.said() == before
    assert is_as_from_scratch(world, tmp_path / "b")


class KilledError(Exception):
    """The process ended here."""


def _die_after(step: str) -> Any:
    def after(done: str) -> None:
        if done == step:
            raise KilledError

    return after


def test_a_process_that_is_killed_leaves_what_the_next_one_ends(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    world.send(a_day())
    arguments = [sys.executable, "-m", "tests.support.spark_places_crash", world.root, "stops"]
    assert subprocess.run(arguments, check=False, timeout=240).returncode == -9
    assert world.rows("place_states") == []
    world.run()
    assert is_as_from_scratch(world, tmp_path / "b")
    assert {row["version"] for row in world.rows("stops")} == {1}


def test_two_runs_at_a_time_one_of_them_gives_way(tmp_path: Path) -> None:
    for number, step in enumerate(("folded", "trips superseded", "fences")):
        world = PlacesWorld(tmp_path / str(number))
        world.send(a_day()[:200])
        world.run()
        world.send(a_day()[200:])

        def meanwhile(done: str, step: str = step, world: PlacesWorld = world) -> None:
            if done == step:
                world.run()

        with pytest.raises(TablesBusyError, match="another run of places"):
            world.run(meanwhile)
        assert world.run().created == 0
        assert is_as_from_scratch(world, tmp_path / f"{number}-anew"), step


def test_other_settings_and_other_fences_compute_everything_anew(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    world.send(a_day())
    world.run()
    assert len(world.rows("trips")) == 2
    world.settings = replace(world.settings, stop_s=600.0, trip_m=5000.0)
    done = world.run()
    assert (done.anew, done.after_ingest, world.rows("trips")) == (True, 0, [])
    assert len(world.rows("trips_superseded")) == 2
    world.settings, world.fences = replace(world.settings, trip_m=100.0), world.fences[:1]
    assert world.run().anew
    assert {row["fence"] for row in world.rows("fences")} == {"depot"}
    assert is_as_from_scratch(world, tmp_path / "b")
    assert not world.run().anew


def test_rounds_of_some_hours_give_what_one_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = PlacesWorld(tmp_path / "a")
    for part in in_pieces(random.Random(4), a_day(), 5):
        world.send(part)
    monkeypatch.setattr(job, "ROUND_HOURS", 1)
    world.run()
    monkeypatch.setattr(job, "ROUND_HOURS", 1 << 16)
    assert is_as_from_scratch(world, tmp_path / "b")


def test_days_that_retention_takes_out_stay_as_they_were(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    world.send(a_day())
    kept = Maintenance(world.root, SYSTEM_CLOCK).run(Keeping(points_days=1))
    assert kept.unseen_points > 0
    world.run()
    before = world.said()
    from backhaul_spark.rollup.rollup import Rollup

    Rollup(world.root, SYSTEM_CLOCK, run_here).run()
    assert Maintenance(world.root, SYSTEM_CLOCK).run(Keeping(points_days=1)).removed_rows
    world.send(drive(9000, 9300, 0, 4000))
    assert world.run().too_late == 1
    assert world.said() == before


def test_points_stay_until_their_positions_were_looked_at(tmp_path: Path) -> None:
    from backhaul_spark.rollup.rollup import Rollup

    world = PlacesWorld(tmp_path / "a")
    world.send(a_day()[:100])
    world.run()
    world.send(a_day()[100:])
    Rollup(world.root, SYSTEM_CLOCK, run_here).run()
    done = Maintenance(world.root, SYSTEM_CLOCK).run(Keeping(points_days=1))
    assert done.unseen_points > 0


def test_positions_may_have_any_names_and_any_scale(tmp_path: Path) -> None:
    named = PlacesWorld(tmp_path / "a", fences=())
    named.send(a_day())
    named.run()
    settings = replace(named.settings, positions=(("nav.y", "nav.x"),), degrees=1e-7)
    other = PlacesWorld(tmp_path / "b", settings, fences=())
    names = {"gps.lat": "nav.y", "gps.lon": "nav.x"}
    other.send(At(s, names[series], round(float(str(value)) * 1e7)) for s, series, value in a_day())
    other.run()
    ways = [[round(row["distance_m"]) for row in each.rows("trips")] for each in (named, other)]
    assert ways[0] == ways[1] != []


def test_a_day_is_told_for_the_report(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    assert day_of_places(world.root, date(2026, 1, 1)) is None
    world.send(a_day())
    world.run()
    told = day_of_places(world.root, date(2026, 1, 1))
    assert told is not None
    assert (told["trips"], told["stops"], told["devices"], told["energy_wh"]) == (2, 3, 1, None)
    assert told["distance_m"] == pytest.approx(6000, rel=0.02)
    assert len(told["crossings"]) == 9
    assert day_of_places(world.root, date(2026, 1, 2)) is None


def test_a_run_that_began_before_another_one_may_not_even_begin_anew(tmp_path: Path) -> None:
    world = PlacesWorld(tmp_path / "a")
    world.send(a_day()[:200])
    world.run()
    slow = Places(
        world.root, SYSTEM_CLOCK, run_here, replace(world.settings, stop_s=60.0), world.fences
    )
    world.send(a_day()[200:])
    world.run()
    with pytest.raises(TablesBusyError):
        slow.run()
    assert is_as_from_scratch(world, tmp_path / "b")
