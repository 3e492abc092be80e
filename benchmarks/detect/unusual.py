"""False alarms of rule `unusual` at its defaults, on simulated vehicles that are well for a week."""

from __future__ import annotations

import os
import time
from collections import Counter

from backhaul_spark.rules.alert import Alert
from backhaul_spark.rules.config import plan_from
from tests.support.twin_batches import Bucket
from tests.support.well_vehicles import SERIES, vehicle

DAYS = 7
MINUTE_S = 60
AIM_A_MONTH = 1.0
_MONTH_DAYS = 30
_FRAME = 10
_BATCH = 360


def run(*, quick: bool) -> dict[str, object]:
    """Run the rule over vehicles, print alarms a vehicle and month, return them.

    BACKHAUL_VEHICLES sets how many there are: 30 by default, of which each takes some 8 s of one core.
    """
    count = int(os.environ.get("BACKHAUL_VEHICLES", "4" if quick else "30"))
    before = time.process_time()
    alarms = [alert for alert in _week(count) if alert.kind == "raised"]
    seconds = time.process_time() - before
    readings = count * DAYS * 1440 * len(SERIES)
    rate = len(alarms) / count / DAYS * _MONTH_DAYS
    plan = plan_from({"rules": {"unusual": {"series": SERIES}}}, "benchmark")
    [state] = [one.rule.state.itemsize for one in plan.rules if one.rule.name == "unusual"]
    kinds = Counter("together" if "series " in alert.text else "alone" for alert in alarms)
    met = "met" if rate <= AIM_A_MONTH else "MISSED"
    print(f"{count} vehicles, {DAYS} days, {len(SERIES)} series a minute: {len(alarms)} alarms")
    print(f"  {dict(kinds)}; {rate:.2f} a vehicle and month; aim {AIM_A_MONTH:g}: {met}")
    print(f"  {1e6 * seconds / readings:.0f} us a reading, {state / 1e3:.0f} kB a device")
    return {
        "vehicles": count,
        "alarms": len(alarms),
        "a_month": rate,
        "us_a_reading": 1e6 * seconds / readings,
        "state_bytes": state,
    }


def _week(count: int) -> list[Alert]:
    """Return the rule's alerts of so many vehicles, each sending a series in frames of ten minutes."""
    bucket = Bucket({"rules": {"unusual": {"series": SERIES}}})
    values = [vehicle(seed, DAYS) for seed in range(count)]
    found = []
    for start in range(0, DAYS * 1440, _FRAME):
        end_s = (start + _FRAME) * MINUTE_S
        for seed, of_vehicle in enumerate(values):
            for place, name in enumerate(SERIES):
                frame = of_vehicle[start : start + _FRAME, place].tolist()
                readings = [
                    (name, (start + at) * MINUTE_S, value) for at, value in enumerate(frame)
                ]
                bucket.say(f"V{seed}", end_s, *readings)
        if start % _BATCH == 0:
            found += bucket.run(end_s)
    found += bucket.run(DAYS * 86_400)
    return [alert for alert in found if alert.rule == "unusual"]
