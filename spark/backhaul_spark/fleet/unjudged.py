"""Name the parts of a day that were not judged, and the limits of its completeness reports: no finding is no all-clear. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from backhaul_spark.fleet.cohorts import PEERS_MIN
from backhaul_spark.fleet.findings import count

if TYPE_CHECKING:
    from backhaul_spark.fleet.readings import Signal

NAMED_MAX = 10
_NEEDED = PEERS_MIN + 1


def not_compared(devices: Mapping[Signal, int]) -> str:
    """Return a sentence about the signals that too few devices have to be compared, "" for none.

    Args:
        devices: how many devices had readings of each signal, in the whole fleet.
    """
    few = sorted(signal for signal, number in devices.items() if number < _NEEDED)
    if not few:
        return ""
    why = f"a signal is compared where {_NEEDED} devices or more have it"
    if len(few) == len(devices):
        most = count(max(devices.values()), "device has", "devices have")
        return (
            f"No device was compared with others: {why}, and here at most {most} one. Each was compared with"
            " its own days before, where there are three or more; and clocks were looked at, sensors that stand"
            " still, and who was silent."
        )
    names = ", ".join(map(str, few[:NAMED_MAX]))
    more = f" and {len(few) - NAMED_MAX:,} more" if len(few) > NAMED_MAX else ""
    were = "was" if len(few) == 1 else "were"
    return (
        f"{len(few):,} of {len(devices):,} signals {were} not compared with other devices, but with each"
        f" device's own days before: {why}."
        f" {names}{more}"
    )


def without_past(number: int) -> str:
    """Return a sentence about device's signals with neither peers nor a past, "" for none."""
    if not number:
        return ""
    whose = count(number, "signal of a device has", "signals of devices have")
    return f"{whose} too few peers and no three days before: of these nobody knows what is usual."


def handed_over_later(hours: int, devices: int, since: Mapping[str, int] | None) -> str:
    """Describe the hours with readings and without a completeness report, "" where there are none.

    Args:
        hours: device-hours of the day that have readings, and no completeness report.
        devices: how many devices they are of.
        since: how many hours of these devices are reported from the day on, by state; None: too many
            devices to look.
    """
    if not hours:
        return ""
    said = (
        f"{count(hours, 'device-hour has', 'device-hours have')} readings and no completeness report. All of these"
        " readings are held. A completeness report is of the hour in which a vehicle acknowledged, and these were"
        " handed over in later hours, as by a replay, or completeness reports are not up to date."
    )
    if since is None:
        return f"{said} `backhaul-spark completeness DEVICE` says whether more is to come."
    if not sum(since.values()):
        return f"{said} No later hour of {_of(devices)} is reported yet: whether more is to come is not known."
    open_ = ", ".join(
        f"{since[state]:,} {state}" for state in ("waiting", "explained") if since.get(state)
    )
    if not open_:
        return f"{said} Every hour of {_of(devices)} that is reported since is complete: nothing of it is missing."
    return (
        f"{said} Of the hours of {_of(devices)} that are reported since {open_}: readings of this day may be"
        " among what is missing there (`backhaul-spark completeness DEVICE`)."
    )


def _of(devices: int) -> str:
    return "this device" if devices == 1 else f"these {devices:,} devices"
