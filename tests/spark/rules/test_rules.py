"""Each rule by what it says: values, limits, texts, commands."""

from __future__ import annotations

import numpy as np
import pytest

from backhaul_spark.decode.sample_batch import MARKS
from tests.support.twin_batches import T0, Bucket, S, spoken

TEMP, SOC, LOAD = "battery.temp", "battery.soc", "cpu.load"


@pytest.fixture
def bucket() -> Bucket:
    return Bucket()


def heat(bucket: Bucket, *temps: float, start_s: float = 0, device: str = "A") -> None:
    for number, temp in enumerate(temps):
        at_s = start_s + number
        bucket.say(device, at_s, (TEMP, at_s, temp))


def test_three_hot_samples_in_a_row_raise_once_and_cool_the_device_down(bucket: Bucket) -> None:
    heat(bucket, 61, 62, 59, 61, 62, 63, 64, 60, 61)
    [raised, cleared] = bucket.run(10)
    assert (raised.kind, raised.severity, raised.value, raised.limit) == (
        "raised",
        "critical",
        63,
        60,
    )
    assert (raised.command, raised.params) == ("cool_down", {"target_c": 55.0})
    assert raised.text == "battery.temp is 63 deg C, above 60"
    assert (raised.node, raised.type, raised.key, raised.unit) == ("battery", "temp", "", "deg C")
    assert (cleared.kind, cleared.time_ns, cleared.command) == ("cleared", T0 + 7 * S, "")


def test_it_makes_no_difference_how_samples_are_cut_into_batches(bucket: Bucket) -> None:
    temps = [61, 62, 59, 61, 62, 63, 64, 60, 61, 62, 63]
    heat(bucket, *temps)
    together = spoken(bucket.run(20))
    apart = Bucket()
    for at_s, temp in enumerate(temps):
        heat(apart, temp, start_s=at_s)
        apart.run(at_s)
        apart.restart()
    assert spoken(apart.alerts) == together != []


def test_a_threshold_changes_live_and_the_newest_one_counts(bucket: Bucket) -> None:
    bucket.set("A", 0, 70)
    heat(bucket, 65, 65, 65)
    assert bucket.run(3) == []
    bucket.set("A", 10, 64)
    bucket.set("A", 5, 90)  # older, and later there: it has lost
    heat(bucket, 65, 65, 65, start_s=10)
    [raised] = bucket.run(13)
    assert (raised.limit, raised.params) == (64, {"target_c": 59.0})
    bucket.restart()
    bucket.set("A", 10, 80, origin="")  # the same time: the greater origin has won already
    heat(bucket, 65, start_s=20)
    assert bucket.run(21) == []
    bucket.set("A", 30, 80, origin="")
    heat(bucket, 65, start_s=30)
    assert spoken(bucket.run(31)) == [("temperature", "cleared", 30)]


def test_a_deleted_threshold_is_the_default_again(bucket: Bucket) -> None:
    bucket.set("A", 0, 70)
    bucket.set("A", 1, 70, tombstone=1)
    heat(bucket, 65, 65, 65, start_s=1)
    [raised] = bucket.run(4)
    assert raised.limit == 60


def test_a_threshold_written_before_the_device_was_ever_heard_counts(bucket: Bucket) -> None:
    bucket.set("B", 0, 50)
    bucket.run(0)
    bucket.restart()
    heat(bucket, 55, 55, 55, device="B")
    [raised] = bucket.run(3)
    assert (raised.device, raised.limit) == ("B", 50)


def test_a_battery_that_falls_while_idle_is_found_and_one_at_work_is_not(bucket: Bucket) -> None:
    for minute in range(40):
        at_s = minute * 60
        fall = minute * 0.3  # 18 %/h
        for device, load in (("idle", 0.1), ("busy", 0.7)):
            bucket.say(device, at_s, (LOAD, at_s, load), (SOC, at_s, 80 - fall))
        bucket.say("sound", at_s, (LOAD, at_s, 0.1), (SOC, at_s, 80 - minute * 0.1))
    [raised] = bucket.run(2400)
    assert (raised.device, raised.rule, raised.severity) == ("idle", "battery", "warning")
    assert raised.value == pytest.approx(18, abs=0.1)
    assert (raised.limit, raised.unit, raised.time_ns) == (10, "%/h", T0 + 660 * S)
    assert raised.text == "battery.soc falls 18.0 %/h while idle, more than 10"


def test_a_battery_alert_ends_when_the_fall_does_or_the_vehicle_has_work(bucket: Bucket) -> None:
    for minute in range(60):
        at_s = minute * 60
        fall = 0.3 * min(minute, 20)
        bucket.say("rests", at_s, (LOAD, at_s, 0.1), (SOC, at_s, 80 - fall))
        bucket.say("drives", at_s, (LOAD, at_s, 0.1 if minute < 30 else 0.8),
                   (SOC, at_s, 80 - 0.3 * minute))  # fmt: skip
    alerts = bucket.run(3600)
    ends = {alert.device: alert for alert in alerts if alert.kind == "cleared"}
    assert ends["drives"].time_ns == T0 + 1800 * S
    assert ends["drives"].text == "the vehicle is busy again: battery.soc may fall"
    assert 1500 * S < ends["rests"].time_ns - T0 < 2200 * S


def test_a_vehicle_whose_load_is_not_known_is_not_idle(bucket: Bucket) -> None:
    bucket.say("A", 0, (LOAD, 0, 0.1))
    for minute in range(16, 60):
        bucket.say("A", minute * 60, (SOC, minute * 60, 80 - minute))
    assert {alert.rule for alert in bucket.run(3600)} == {"silence"}


def test_load_may_run_ahead_of_charge(bucket: Bucket) -> None:
    """The load comes by the live lane at once, the charge in frames of a few minutes."""
    for start in range(0, 40, 5):
        for minute in range(start, start + 5):
            bucket.say("A", minute * 60, (LOAD, minute * 60, 0.1), lane="live")
        bucket.run((start + 5) * 60)
        charge = [(SOC, minute * 60, 80 - 0.3 * minute) for minute in range(start, start + 5)]
        bucket.say("A", (start + 5) * 60, *charge)
        bucket.run((start + 5) * 60)
    assert spoken(bucket.alerts) == [("battery", "raised", 600)]


def test_silence_is_told_once_and_its_end_with_the_vehicles_own_word(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.say("B", 290)
    bucket.run(290)
    assert bucket.tick(300) == []
    [raised] = bucket.tick(301)
    assert (raised.device, raised.rule, raised.time_ns) == ("A", "silence", T0 + 300 * S)
    assert raised.text == "nothing was heard for 300 s, since 2026-01-01 00:00:00 UTC"
    assert bucket.tick(400) == []
    bucket.restart()
    bucket.say("A", 500)
    bucket.say("A", 520, mark=MARKS["link"])
    [cleared] = bucket.run(521)
    assert (cleared.kind, cleared.time_ns, cleared.value) == ("cleared", T0 + 500 * S, 500)
    assert cleared.text == (
        "the link was down from 2026-01-01 00:00:00 UTC to 2026-01-01 00:08:20 UTC; "
        "the vehicle ran meanwhile"
    )
    assert bucket.tick(580) == []


def test_a_silence_that_nobody_explains_ends_without_an_explanation(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.run(0)
    bucket.tick(301)
    bucket.say("A", 400)
    assert bucket.run(400) == []  # its word may still come
    bucket.say("A", 410, mark=MARKS["hour"])  # says nothing of the link
    assert bucket.run(410) == []
    bucket.restart()
    [cleared] = bucket.tick(446)
    assert cleared.text.startswith("heard again; silent from")
    assert cleared.text.endswith("without an explanation")


def test_a_vehicle_that_starts_again_says_so(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.say("A", 1000, mark=MARKS["start"])
    [raised, cleared] = bucket.run(1000)
    assert (raised.time_ns, cleared.time_ns) == (T0 + 300 * S, T0 + 1000 * S)
    assert "has started again" in cleared.text


def test_several_silences_in_one_batch_are_each_told(bucket: Bucket) -> None:
    for at_s, mark in ((0, 0), (1000, 0), (2000, 0), (2001, MARKS["link"]), (3000, 0)):
        bucket.say("A", at_s, mark=mark)
    bucket.say("B", 0)
    bucket.say("B", 2990, mark=MARKS["link"])
    alerts = [alert for alert in bucket.run(3000) if alert.device == "A"]
    assert sorted((a.kind, (a.time_ns - T0) // S) for a in alerts) == [
        ("cleared", 1000),
        ("cleared", 2000),
        ("raised", 300),
        ("raised", 1300),
        ("raised", 2301),
    ]
    texts = {a.time_ns: a.text for a in alerts if a.kind == "cleared"}
    assert "without an explanation" in texts[T0 + 1000 * S]
    assert "the link was down" in texts[T0 + 2000 * S]
    assert spoken(bucket.tick(3100)) == [("silence", "cleared", 3000)]


def test_nobody_is_silent_while_the_job_is_behind(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.run(10_000)
    assert bucket.tick(10_000, until_s=200) == []
    assert len(bucket.tick(10_000, until_s=400)) == 1


def test_many_devices_at_once_are_each_told_for_themselves(bucket: Bucket) -> None:
    rng = np.random.default_rng(1)
    hot = {f"D{n}" for n in rng.choice(1000, 100, replace=False)}
    for at_s in range(3):
        for number in range(1000):
            device = f"D{number}"
            bucket.say(device, at_s, (TEMP, at_s, 70 if device in hot else 30))
    assert {alert.device for alert in bucket.run(3)} == hot
    assert len(bucket.tick(400)) == 1000


def beats(bucket: Bucket, from_s: int, to_s: int) -> list[tuple[str, str, float]]:
    """Let time pass while the hub looks who is there; return what the rules find."""
    found = []
    for second in range(from_s, to_s + 1, 60):
        bucket.beat(second)
        bucket.run(second)
        found += spoken(bucket.tick(second))
    return found


def test_a_vehicle_that_is_there_and_has_nothing_to_say_is_not_silent(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.see("A", 1, there=True)
    bucket.run(1)
    assert beats(bucket, 60, 7200) == []
    bucket.say("A", 7210)
    assert spoken(bucket.run(7211)) == [], "nor was it, when it has something to say again"
    bucket.restart()
    assert beats(bucket, 7260, 9000) == []


def test_an_agent_that_is_gone_is_silent_from_then_on(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.see("A", 1, there=True)
    assert beats(bucket, 60, 3600) == []
    bucket.see("A", 3620, there=False)
    assert beats(bucket, 3660, 3900) == []
    assert beats(bucket, 3960, 4500) == [("silence", "raised", 3920)]
    bucket.see("A", 4510, there=False)  # a control plane that starts says so again
    assert spoken(bucket.run(4511)) == []
    bucket.see("A", 5000, there=True)
    bucket.say("A", 5001, mark=MARKS["start"])
    [end] = bucket.run(5002)
    assert (end.kind, end.time_ns) == ("cleared", T0 + 5000 * S)
    assert "agent did not run" in end.text
    assert beats(bucket, 5040, 9000) == []


def test_where_the_hub_does_not_look_what_it_said_of_an_agent_holds_no_more(bucket: Bucket) -> None:
    bucket.say("A", 0)
    bucket.see("A", 1, there=True)
    assert beats(bucket, 60, 600) == []
    assert spoken(bucket.tick(600 + 150 + 300)) == []
    assert spoken(bucket.tick(600 + 150 + 301)) == [("silence", "raised", 1050)]
    bucket.see("A", 2000, there=False)
    assert spoken(bucket.run(2001)) == [], "it looks again, and the vehicle is gone"
    assert beats(bucket, 2030, 2090) == [], "that is no end of the silence"
    bucket.see("A", 2100, there=True)
    assert [kind for _, kind, _ in spoken(bucket.run(2101) + bucket.tick(2200))] == ["cleared"]


def test_the_hubs_word_is_judged_by_its_order_and_of_each_device_by_itself(bucket: Bucket) -> None:
    """The job was away: all of it comes in one batch."""
    bucket.say("A", 0)
    bucket.say("B", 0)
    bucket.see("A", 1, there=True)
    bucket.see("B", 1, there=True)
    bucket.see("B", 100, there=False)
    bucket.see("B", 1000, there=True)
    bucket.say("A", 2000)
    bucket.say("B", 2000)
    found = spoken(bucket.run(2001)) + spoken(bucket.tick(2100))
    assert found == [("silence", "raised", 400), ("silence", "cleared", 1000)]
    assert {alert.device for alert in bucket.alerts} == {"B"}


def test_what_the_hub_says_of_a_device_that_never_spoke_makes_no_alert(bucket: Bucket) -> None:
    bucket.see("A", 0, there=False)
    bucket.see("B", 0, there=True)
    bucket.run(1)
    assert beats(bucket, 60, 3600) == []
