"""Rule `unusual`: one series by itself, several together, cuts, and what it costs in state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from backhaul_spark.detect import detector, joint, rows
from backhaul_spark.errors import OptionError
from backhaul_spark.rules.config import plan_from
from tests.support.twin_batches import Bucket

if TYPE_CHECKING:
    from backhaul_spark.rules.alert import Alert

pytestmark = pytest.mark.slow

MINUTE = 60


def config(*series: str, **settings: Any) -> dict[str, Any]:
    rule = {"series": series, "learning": 120, **settings}
    return {"rules": {"unusual": rule, "battery": {"enabled": False}}}


def of(alerts: list[Alert]) -> list[Alert]:
    return [alert for alert in alerts if alert.rule == "unusual"]


def test_without_series_it_says_nothing_and_keeps_nothing() -> None:
    plan = plan_from({}, "test")
    [spoken] = [spoken for spoken in plan.rules if spoken.rule.name == "unusual"]
    assert not spoken.signals
    assert spoken.rule.state.itemsize < 20


def test_one_series_is_judged_by_itself_and_the_alert_ends() -> None:
    bucket = Bucket(config("pump.flow", together=0.0))
    flow = np.random.default_rng(1).normal(10, 1, 400)
    flow[300] = 40
    for at, value in enumerate(flow):
        bucket.say("A", at * MINUTE, ("pump.flow", at * MINUTE, float(value)))
    raised, cleared = of(bucket.run(400 * MINUTE))
    assert (raised.kind, raised.time_ns // 10**9 % 86400) == ("raised", 300 * MINUTE)
    assert (str(raised.node), raised.value is not None and raised.value >= 3) == ("pump", True)
    assert "pump.flow is 40, where 9." in raised.text or "pump.flow is 40, where 10." in raised.text
    assert "beyond everything before" in raised.text
    assert (cleared.kind, cleared.text) == ("cleared", "nothing is unusual any more")


def coupled(count: int, breaks_at: int) -> tuple[list[float], list[float]]:
    """Two signals that follow each other; from a row on the second does no more. Each stays as it was."""
    noise = np.random.default_rng(3).normal(size=(3, count))
    load = np.convolve(noise[0], np.ones(5), "same")
    follows = load + 0.1 * noise[1]
    own = np.convolve(noise[2], np.ones(5), "same")
    follows[breaks_at:] = own[breaks_at:]
    return load.tolist(), follows.tolist()


def alerts_of(cuts: tuple[int, ...], frame: int = 10) -> list[tuple[str, int, str]]:
    """Run it with each series in frames of its own, `frame` rows each, cut into batches."""
    bucket = Bucket(config("pump.load", "pump.follows", score=0.0, rows=3))
    signals = coupled(400, 300)
    found = []
    for part in range(0, 400, frame):
        for name, values in zip(("pump.load", "pump.follows"), signals, strict=True):
            readings = [
                (name, at * MINUTE, values[at]) for at in range(part, min(part + frame, 400))
            ]
            bucket.say("A", (part + frame) * MINUTE, *readings)
        if part in cuts:
            found += bucket.run((part + frame) * MINUTE)
    found += bucket.run(400 * MINUTE)
    return [(alert.kind, alert.time_ns, alert.text) for alert in of(found)]


def test_what_no_series_shows_alone_is_seen_together_however_batches_are_cut() -> None:
    at_once = alerts_of(())
    [(kind, time_ns, text)] = at_once
    assert kind == "raised"
    assert 300 * MINUTE <= time_ns // 10**9 % 86400 <= 330 * MINUTE
    assert "pump." in text
    assert "no longer go together" in text or "move otherwise" in text
    assert alerts_of((50, 200, 290, 300, 310)) == at_once
    assert alerts_of(tuple(range(0, 400, 10))) == at_once


def test_the_state_of_a_device_is_bounded_and_known() -> None:
    names = [f"pump.s{at}" for at in range(8)]
    plan = plan_from(config(*names), "test")
    [spoken] = [spoken for spoken in plan.rules if spoken.rule.name == "unusual"]
    numbers = 8 * detector.FLOATS + rows.floats_of(8) + joint.floats_of(8)
    assert numbers * 8 < spoken.rule.state.itemsize < numbers * 8 + 100
    assert joint.floats_of(8) * 8 < 5_000
    assert detector.FLOATS * 8 < 28_000


def test_a_series_that_is_none_is_refused() -> None:
    with pytest.raises(OptionError):
        plan_from(config("flow"), "twin.toml")
