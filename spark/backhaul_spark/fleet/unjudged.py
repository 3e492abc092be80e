"""Name the parts of a day that were not judged, and the limits of its completeness reports: no finding is no all-clear. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from backhaul_spark.fleet.cohorts import PEERS_MIN
from backhaul_spark.fleet.findings import count

if TYPE_CHECKING:
    from backhaul_spark.fleet.readings import Signal

NAMED_MAX = 10
ROWS_MAX = 1000
"""Devices that are named for one reason and signal; of more there is one row for all together."""
_NEEDED = PEERS_MIN + 1

Reason = Literal["few_peers", "no_past", "alike", "clock", "signals"]
_CLOCK = (
    "all of these readings came to the hub more than an hour after they were taken, and none after them that came at"
    " once: whether the clock was right cannot be told by when they were stored"
)


@dataclass(frozen=True, slots=True)
class UnjudgedPart:
    """Something that was not judged, or not as all else is.

    Attributes:
        reason: why.
        device: "" where it is about all that have the signal.
        signal: None where it is about all of a device.
        devices: how many devices it is about.
        text: the same in a sentence.
    """

    reason: Reason
    device: str
    signal: Signal | None
    devices: int
    text: str


@dataclass(frozen=True, slots=True)
class SignalGaps:
    """The devices that the judge could not compare in one signal.

    Attributes:
        alone: how many have too few peers.
        without_past: the ids of those of them that have no past to go by either.
        alike: how many devices have peers of which more than half are exactly alike.
    """

    alone: int
    without_past: Sequence[str]
    alike: int


def unjudged_parts(
    gaps: Mapping[Signal, SignalGaps], clock_unknown: Iterable[str], signals_left_out: int
) -> list[UnjudgedPart]:
    """Return the rows of the table, in a fixed order; at most ROWS_MAX devices by name for a reason and signal.

    `clock_unknown`: devices of which nothing tells whether the clock was right.
    """
    found: list[UnjudgedPart] = []
    for signal, gap in sorted(gaps.items()):
        if gap.alone:
            whose = count(gap.alone, "device", "devices")
            text = (
                f"{signal} of {whose} was compared with these devices' own days before, and with no other device:"
                f" {_NEEDED} have to have it"
            )
            found.append(UnjudgedPart("few_peers", "", signal, gap.alone, text))
        text = f"{signal} has too few peers and no three days before: nobody knows what is usual"
        found += _each("no_past", signal, gap.without_past, text)
        if gap.alike:
            text = (
                f"{signal} is exactly alike in more than half of the peers of"
                f" {count(gap.alike, 'device', 'devices')}: there is no measure of how far one lies from them"
            )
            found.append(UnjudgedPart("alike", "", signal, gap.alike, text))
    found += _each("clock", None, sorted(clock_unknown), _CLOCK)
    if signals_left_out:
        text = f"{count(signals_left_out, 'signal', 'signals')} with the fewest readings: too many to judge"
        found.append(UnjudgedPart("signals", "", None, 0, text))
    return found


def _each(
    reason: Reason, signal: Signal | None, devices: Sequence[str], text: str
) -> list[UnjudgedPart]:
    if len(devices) > ROWS_MAX:
        return [UnjudgedPart(reason, "", signal, len(devices), text)]
    return [UnjudgedPart(reason, device, signal, 1, text) for device in devices]


def not_compared(devices: Mapping[Signal, int]) -> str:
    """Return a sentence about the signals that too few devices of the fleet have to be compared, "" for none."""
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


def without_clock(number: int) -> str:
    """Return a sentence about devices of which nothing tells whether the clock was right, "" for none."""
    if not number:
        return ""
    whose = count(number, "device", "devices")
    return f"Of {whose} all readings came later, and nothing tells whether the clock was right."


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
