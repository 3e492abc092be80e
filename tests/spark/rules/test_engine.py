"""The engine: late data, repeats, what is remembered, what a twin shows."""

from __future__ import annotations

import json
import math
import random
import re
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pytest

from backhaul_spark.decode.sample_batch import Batch, hashes
from backhaul_spark.decode.series import SeriesKey
from backhaul_spark.errors import OptionError
from backhaul_spark.rules import rule as rule_module
from backhaul_spark.rules.catalog import known_rules
from backhaul_spark.rules.config import TwinSection, plan_from, read_plan
from backhaul_spark.rules.engine import Engine
from backhaul_spark.rules.plan import Plan
from backhaul_spark.rules.repeats import first_times, lane_table
from backhaul_spark.rules.rounds import rounds
from backhaul_spark.rules.table import Table
from backhaul_spark.rules.twins import Twins
from tests.support.twin_batches import T0, Bucket, S, spoken

if TYPE_CHECKING:
    from msgspec import Struct

pytestmark = pytest.mark.slow

TEMP, SOC = "battery.temp", "battery.soc"


def test_a_replayed_backlog_raises_its_alerts_late_and_sends_no_command() -> None:
    bucket = Bucket()
    for at_s in range(5):
        bucket.say("A", 7200 + at_s, (TEMP, at_s, 70))
    [raised] = bucket.run(7210)
    assert (raised.late, raised.time_ns) == (True, T0 + 2 * S)
    assert raised.to_row()["command"] == ""


def test_a_backlog_behind_newer_samples_is_judged_by_itself() -> None:
    bucket = Bucket()
    bucket.say("A", 1000, (TEMP, 1000, 70), (TEMP, 1001, 70))
    bucket.run(1001)
    for at_s in range(5):  # what was measured before comes after it
        bucket.say("A", 1002, (TEMP, 100 + at_s, 80))
        bucket.run(1002)
        bucket.restart()
    bucket.say("A", 1003, (TEMP, 1002, 70))
    bucket.run(1003)
    late, now = bucket.alerts
    assert (late.late, late.time_ns, late.value) == (True, T0 + 102 * S, 80)
    assert (now.late, now.time_ns, now.command) == (False, T0 + 1002 * S, "cool_down")


@pytest.mark.parametrize("value", [-math.inf, math.inf])
def test_a_config_point_of_infinity_is_no_limit(value: float) -> None:
    bucket = Bucket()
    bucket.set("A", 1, value)
    bucket.say("A", 10, *((TEMP, 10 + at_s, 59) for at_s in range(3)))
    bucket.say("A", 20, *((TEMP, 20 + at_s, 61) for at_s in range(3)))
    bucket.run(23)
    assert [alert.limit for alert in bucket.alerts] == [60.0], "the rule's own"


def test_one_wild_reading_does_not_spoil_the_figures_for_ever() -> None:
    bucket = Bucket()
    for at_s, value in enumerate((20.0, 1.7e308, -1e30, 22.0)):
        bucket.say("A", at_s, (TEMP, at_s, value))
        bucket.run(at_s)
    [shown] = bucket.snapshot()
    figures = json.loads(shown["statistics"])[TEMP]
    assert (figures["last"], round(figures["mean"])) == (22.0, 21)


def test_nor_does_a_wild_reading_that_is_the_first() -> None:
    bucket = Bucket()
    for at_s, value in enumerate((9e14, 20.0, 21.0, 22.0)):
        bucket.say("A", at_s * 300, (TEMP, at_s * 300, value))
        bucket.run(at_s * 300)
    [shown] = bucket.snapshot()
    figures = json.loads(shown["statistics"])[TEMP]
    assert (figures["last"], round(figures["mean"])) == (22.0, 21)
    assert figures["deviation"] < 1
    assert figures["slope"] == pytest.approx(12, abs=0.1)


@pytest.mark.parametrize(("name", "value"), [("vv", math.inf), ("v", math.nan), ("base", math.inf)])
def test_figures_that_an_older_version_spoilt_heal(name: str, value: float) -> None:
    bucket = Bucket()
    bucket.say("A", 0, (TEMP, 0, 20.0))
    bucket.say("B", 0, (TEMP, 0, 30.0))
    bucket.run(0)
    [row] = bucket.twins.devices.find(hashes(["A"]))
    bucket.twins.devices[TEMP][name][row] = value
    bucket.say("A", 60, (TEMP, 60, 22.0), (TEMP, 61, 24.0))
    bucket.say("B", 60, (TEMP, 60, 30.5))
    bucket.run(61)
    shown = {row["device"]: json.loads(row["statistics"])[TEMP] for row in bucket.snapshot()}
    assert shown["A"]["mean"] == pytest.approx(23, abs=0.1)
    assert shown["B"]["mean"] == pytest.approx(30.25, abs=0.01)


def test_the_same_backlog_replayed_again_says_the_same_ids() -> None:
    bucket = Bucket()
    bucket.say("A", 5000, (TEMP, 5000, 20))
    bucket.run(5000)
    for _ in range(2):
        bucket.say("A", 5001, *((TEMP, at_s, 80) for at_s in range(10)))
        bucket.run(5001)
    first, again = bucket.alerts
    assert first.id == again.id


def test_a_job_that_was_away_sends_no_stale_command() -> None:
    bucket = Bucket()
    bucket.say("A", 3, *((TEMP, at_s, 80) for at_s in range(3)))
    [raised] = bucket.run(3600)
    assert (raised.late, raised.command) == (False, "")


def test_a_repeat_counts_once() -> None:
    bucket = Bucket()
    for seq, temp in ((1, 61), (2, 62), (1, 61), (2, 62), (1, 61)):
        bucket.say("A", 10, (TEMP, seq, temp), seq=seq)
    assert bucket.run(10) == []
    bucket.restart()
    bucket.say("A", 11, (TEMP, 2.5, 99), seq=2)  # known by its place, not by what it says
    assert bucket.run(11) == []
    [shown] = bucket.snapshot()
    assert json.loads(shown["statistics"])[TEMP]["mean"] == pytest.approx(61.5, abs=0.01)


def fresh(table: Table, *seqs: int, lane: int = 1) -> list[int]:
    bucket = Bucket()
    for seq in seqs:
        bucket.say("A", 0, seq=seq, lane=f"n_{lane}")
    return [seq for seq, new in zip(seqs, first_times(table, bucket.batch().messages)) if new]  # noqa: B905


def test_a_hole_is_filled_once_from_its_low_end() -> None:
    table = lane_table()
    assert fresh(table, 1, 2, 3) == [1, 2, 3]
    assert fresh(table, *range(500, 510)) == [*range(500, 510)]
    assert fresh(table, *range(4, 300)) == [*range(4, 300)]
    assert fresh(table, *range(1, 310)) == [*range(300, 310)]
    assert fresh(table, *range(300, 600)) == [*range(310, 500), *range(510, 600)]
    assert fresh(table, *range(1, 600)) == []
    assert fresh(table, 1, lane=2) == [1]


@pytest.mark.parametrize("seed", range(5))
def test_no_message_counts_twice_and_near_disorder_loses_none(seed: int) -> None:
    dice = random.Random(seed)
    table = lane_table()
    seqs = sorted(range(1, 2000), key=lambda seq: seq + dice.random() * 40)
    seqs += dice.choices(seqs, k=500)
    counts: Counter[int] = Counter()
    while seqs:
        size = dice.randrange(1, 200)
        counts.update(fresh(table, *seqs[:size]))
        seqs = seqs[size:]
    assert counts == Counter(range(1, 2000))


@pytest.mark.parametrize("seed", range(20))
def test_alerts_do_not_depend_on_where_batches_end(seed: int) -> None:
    """Live readings, and replays between them that begin anew now and then, some of them in large frames."""
    dice = random.Random(seed)
    messages: list[tuple[str, float, list[tuple[str, float, float]]]] = []
    replay_s = {"A": 0.0, "B": 0.0}
    for stored_s in range(1_000, 1_200):
        device, count = dice.choice("AB"), dice.choice((1, 1, 5))
        if dice.random() < 0.5:
            from_s = stored_s - 1.0
        elif dice.random() < 0.1:
            from_s = replay_s[device] = dice.uniform(0, 500)
        else:
            from_s = replay_s[device]
        if from_s < 600:
            replay_s[device] = from_s + count
        hot = stored_s // 20 % 2
        readings = [
            ("battery.temp", from_s + n / 10, dice.choice((20.0, 70.0, 70.0, 70.0)[hot:]))
            for n in range(count)
        ]
        messages.append((device, stored_s, readings))
    found = []
    for longest in (1, 7, 1_000):
        bucket = Bucket()
        for device, at_s, readings in messages:
            bucket.say(device, at_s, *readings)
            if dice.randrange(longest) == 0:
                bucket.run(at_s)
        bucket.run(1_200)
        found.append(sorted((a.device, a.kind, a.time_ns, a.late) for a in bucket.alerts))
    assert len(found[0]) > 10
    assert len({late for *_, late in found[0]}) == 2
    assert found[0] == found[1] == found[2]


def test_statistics_do_not_depend_on_the_order_of_batches() -> None:
    samples = [(SOC, n * 60.0, 90 - n * 0.2) for n in range(120)]
    shown = []
    for order in (samples, samples[60:] + samples[:60]):
        bucket = Bucket()
        for start in range(0, 120, 10):
            bucket.say("A", 8000, *order[start : start + 10])
            bucket.run(8000)
        shown += bucket.snapshot()
    first, second = shown
    assert first["soc_pct"] == second["soc_pct"] == pytest.approx(66.2)
    assert first["soc_rate_pct_h"] == pytest.approx(-12, abs=0.05)
    assert second["soc_rate_pct_h"] == pytest.approx(-12, abs=0.05)
    curve = json.loads(first["statistics"])["battery_curve"]
    assert curve == json.loads(second["statistics"])["battery_curve"]
    assert curve == {"0": 66.0, "1": 78.0}


def test_a_snapshot_says_how_a_device_is() -> None:
    bucket = Bucket()
    bucket.say("A", 10, *((TEMP, at_s, 70) for at_s in range(3)), ("untimely", 0, 1))
    bucket.say("B", 11)
    bucket.run(11)
    shown = {row["device"]: row for row in bucket.snapshot()}
    assert (shown["A"]["health"], shown["A"]["open_alerts"]) == (0.5, '["temperature"]')
    assert (shown["B"]["health"], shown["B"]["open_alerts"]) == (1.0, "[]")
    assert (shown["B"]["soc_pct"], shown["B"]["last_seen_ns"]) == (None, T0 + 11 * S)
    assert json.loads(shown["A"]["statistics"])["untimely_points"] == 1
    assert json.loads(shown["A"]["statistics"])[TEMP]["last"] == 70


def test_a_device_that_left_the_fleet_is_forgotten() -> None:
    bucket = Bucket({"twin": {"forget_after_days": 1}})
    bucket.say("A", 0)
    bucket.say("B", 90_000)
    bucket.run(90_000)
    bucket.tick(90_001)
    assert list(bucket.twins.names.values()) == ["B"]
    assert [row["device"] for row in bucket.snapshot()] == ["B"]


def test_state_of_an_older_program_is_taken_over() -> None:
    old = Table(
        {"a": np.zeros(1, [("x", "i8"), ("gone", "i4")]), "gone": np.zeros(1, [("y", "i8")])}
    )
    rows = old.rows(np.array([5, 3], np.uint64))
    old["a"]["x"][rows] = [50, 30]
    new = Table({"a": np.zeros(1, [("x", "i8"), ("new", "f8")]), "b": np.ones(1, [("z", "i8")])})
    new.unpack(old.pack())
    assert new["a"]["x"].tolist() == [30, 50]
    assert new["a"]["new"].tolist() == [0, 0]
    assert new["b"]["z"].tolist() == [1, 1]


def test_rounds_hold_each_device_once_in_the_order_of_time() -> None:
    rows = np.array([0, 0, 0, 2, 3, 3])
    assert [part.tolist() for part in rounds(rows)] == [[0, 3, 4], [1, 5], [2]]


def test_batches_survive_the_way_between_processes() -> None:
    bucket = Bucket()
    bucket.say("A", 1, (TEMP, 1, 20))
    bucket.set("A", 0, 70)
    first = bucket.batch()
    bucket.say("B", 2, (TEMP, 2, 30))
    second = bucket.batch()
    both = Batch.join(
        Batch.unpack(b.messages.tobytes(), b.samples.tobytes(), b.said()) for b in (first, second)
    )
    assert both.samples["message"].tolist() == [0, 1]
    assert both.devices == ["A", "B"]
    assert both.heads == first.heads
    assert len(Batch.join([]).messages) == 0


def test_messages_are_taken_in_as_the_hub_stored_them_whoever_read_them_first() -> None:
    bucket, parts = Bucket(), []
    for at_s in (1, 2):
        bucket.say("A", at_s, (TEMP, at_s, 10.0 * at_s), (TEMP, at_s + 0.5, 10.0 * at_s + 5))
        parts.append(bucket.batch())
    joined = Batch.join(reversed(parts))
    assert joined.messages["seq"].tolist() == [1, 2]
    assert joined.samples["message"].tolist() == [0, 0, 1, 1]
    assert joined.samples["value"].tolist() == [10.0, 15.0, 20.0, 25.0]


def test_a_replay_goes_on_over_a_tick_however_late_the_job_is() -> None:
    bucket = Bucket()
    bucket.say("A", 1_000, (TEMP, 999, 20.0))
    bucket.say("A", 1_001, (TEMP, 100, 70.0), (TEMP, 101, 70.0))
    bucket.run(90_000)
    bucket.tick(90_000, until_s=1_001)
    bucket.say("A", 1_002, (TEMP, 102, 70.0))
    assert spoken(bucket.run(90_001)) == [("temperature", "raised", 102)]


def test_the_rules_of_the_catalogue_are_found() -> None:
    assert set(known_rules()) == {"battery", "silence", "temperature", "unusual"}


def test_a_series_may_be_elsewhere_and_a_rule_be_off() -> None:
    bucket = Bucket(
        {
            "signals": {"battery.temp": "pack.heat.cell-1"},
            "rules": {"temperature": {"limit_c": 40, "samples": 1}, "battery": {"enabled": False}},
        }
    )
    bucket.say("A", 1, ("pack.heat.cell-1", 1, 41))
    [raised] = bucket.run(1)
    assert (raised.node, raised.type, raised.key, raised.limit) == ("pack", "heat", "cell-1", 40)
    assert spoken([raised]) == [("temperature", "raised", 1)]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"rule": {}},
            "twin.toml='rule': expected one of fleet, places, questions, rules, signals, twin",
        ),
        ({"rules": {"heat": {}}}, "one of battery, silence, temperature, unusual"),
        ({"rules": {"silence": {"after": 3}}}, r"\[rules.silence\].*unknown field `after`"),
        ({"rules": {"silence": {"after_s": -1}}}, r"\[rules.silence\].*> 0"),
        ({"signals": {"battery.temp": "temp"}}, "a series such as battery.soc"),
        ({"signals": {"battery.heat": "a.b"}}, r"\[signals\]='battery.heat'"),
        ({"twin": {"buckets": 0}}, r"\[twin\].*>= 1"),
    ],
    ids=["section", "rule", "key", "value", "series", "signal", "buckets"],
)
def test_a_wrong_configuration_is_refused_with_its_place(
    config: dict[str, object], said: str
) -> None:
    with pytest.raises(OptionError, match=said):
        plan_from(config, "twin.toml")


def test_a_configuration_that_cannot_be_read_is_named(
    tmp_path: Path,
) -> None:
    directory = tmp_path
    with pytest.raises(OptionError, match="No such file"):
        read_plan(str(directory / "none.toml"))
    (directory / "bad.toml").write_text("[twin")
    with pytest.raises(OptionError, match="TOML"):
        read_plan(str(directory / "bad.toml"))


def test_the_page_shows_a_rule_that_works_and_every_key() -> None:
    page = (Path(__file__).parents[3] / "docs/twin-actor.md").read_text()
    [code] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {"rule": rule_module, "np": np, "ClassVar": ClassVar}
    annotations = "from __future__ import annotations\n"
    exec(annotations + code, names)
    rough = names["Rough"]()
    plan = Plan((rule_module.Spoken(rough, {"shock": SeriesKey("body", "shock")}),))
    bucket = Bucket()
    bucket.plan, bucket.engine, bucket.twins = plan, Engine(plan), Twins(plan)
    for at_s, shock in enumerate((1, 40, 40, 2)):
        bucket.say("A", at_s, ("body.shock", at_s, shock))
    assert spoken(bucket.run(4)) == [("rough", "raised", 1), ("rough", "cleared", 3)]
    settings: list[type[Struct]] = [TwinSection]
    settings += [kind.Settings for kind in known_rules().values()]
    keys = {field for one in settings for field in one.__struct_fields__}
    assert keys == {key for key in keys if f"`{key}`" in page}
