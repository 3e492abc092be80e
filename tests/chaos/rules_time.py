"""The checker's rules of time: what a vehicle stamps is true, whatever its wall clock does. Pure.

All parts of a run are on one machine, whose clock is the truth; a vehicle's wall clock is what is wrong.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_codec.assurance.completeness import HOUR_NS
from tests.chaos.diary import Happening, happening_of, readings_of
from tests.chaos.evidence import BY_CLIENT, UNTIMED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.chaos.diary import Entry, Reading, Told
    from tests.chaos.evidence import Found, Span

SLACK_NS = 1_000_000_000
"""How wrong a vehicle may be that has asked the hub over a good link: what is drawn jumps by more."""
_LOOK_NS = 60 * SLACK_NS
"""How long a look may take: completeness reports are read at its end."""


def stamps_are_true(told: Told, found: Found) -> Iterable[str]:
    """What agent or client stamped bears the time at which it was published.

    Judged is what says that the time was known; and all of the ledger that had learned it before anything
    went wrong, whatever it says. A client's own stamp is put right by how wrong the clock is when it
    is taken in, so that a jump between the two is nobody's fault.
    """
    for entry in told.entries:
        span = entry.asked_ns, entry.answered_ns if entry.word == "kept" else found.span[1]
        if entry.body.get("node") == BY_CLIENT and _jumped(found, entry.device, span):
            continue
        for each in _stamped(entry):
            for stamp in found.up.stamps.get(each, ()):
                first = stamp.epoch == found.epochs.get(entry.device)
                slack_ns = SLACK_NS if first else _slack_ns(found, entry.device)
                wrong = _outside(stamp.time_ns, span, slack_ns)
                if wrong and (stamp.synced or first):
                    yield f"{each}: stamped {stamp.time_ns}, {wrong}"


def words_are_true(_: Told, found: Found) -> Iterable[str]:
    """What a vehicle says of itself bears a time within the run."""
    for place, what, time_ns in found.up.words:
        known = place.lane.epoch == found.epochs.get(place.lane.device)
        if known and (wrong := _outside(time_ns, found.span)):
            yield f"e.{what} at {place}: {time_ns}, {wrong}"


def events_keep_their_order(told: Told, found: Found) -> Iterable[str]:
    """Each was acknowledged before the next was reported, so that it stands before it in its lane.

    Not before what another machine with the same identity has reported.
    """
    before: dict[tuple[str, int, int], tuple[int, int]] = {}
    seconds = {
        happening_of(entry): number
        for entry in told.entries
        if entry.what == "event"
        for number, clone in enumerate(found.clones, 1)
        if clone.of_second(entry)
    }
    for happening in sorted(told.happenings("kept")):
        for place in found.up.happenings.get(happening, ())[:1]:
            lane = happening.device, seconds.get(happening, 0), place.lane.epoch
            number, seq = before.get(lane, (0, 0))
            if place.seq < seq:
                yield f"{happening.device}: event {happening.number} stands before {number}"
            before[lane] = happening.number, place.seq


def commands_keep_their_time(_: Told, found: Found) -> Iterable[str]:
    """None expires before its deadline or is started after it, and vehicles tell true times of both."""
    for id_, said in sorted(found.commands.items()):
        spoken = {what: said[what] for what in ("accepted_ns", "ended_ns") if said.get(what)}
        for what, time_ns in spoken.items():
            slack_ns = _slack_at_ns(found, said["device"], time_ns)
            if wrong := _outside(time_ns, (said["queued_ns"], found.span[1]), slack_ns):
                yield f"{id_}: {what} {time_ns}, {wrong}"
            late_ns = time_ns - said["deadline_ns"]
            if what == "accepted_ns" and late_ns > slack_ns:
                yield f"{id_}: started {_seconds(late_ns)} too late"
            if what == "ended_ns" and said["state"] == "expired" and -late_ns > slack_ns:
                yield f"{id_}: expired {_seconds(-late_ns)} too early"


def no_hour_is_complete_before_its_end(_: Told, found: Found) -> Iterable[str]:
    """An hour that is not over has no completeness report that it is complete."""
    for device, hours in found.complete_hours.items():
        for hour_ns in hours:
            if hour_ns + HOUR_NS > found.span[1] + _LOOK_NS:
                yield f"{device}: hour {hour_ns} is complete, and not over at {found.span[1]}"


TIME_RULES = (
    stamps_are_true,
    words_are_true,
    events_keep_their_order,
    commands_keep_their_time,
    no_hour_is_complete_before_its_end,
)


def _stamped(entry: Entry) -> list[Reading | Happening]:
    if entry.what == "event":
        return [Happening(entry.device, entry.body["event"])]
    return [*readings_of(entry)] if entry.body.get("node") in UNTIMED else []


def _jumped(found: Found, device: str, span: Span) -> bool:
    return any(low <= span[1] and high >= span[0] for low, high in found.jumps.get(device, ()))


def _slack_ns(found: Found, device: str) -> int:
    """Return how wrong a vehicle may be: a ledger made since may have asked over a bad link, and says so."""
    errors = found.up.clock_errors.items()
    later = [
        error
        for (whose, epoch), error in errors
        if whose == device and epoch != found.epochs.get(device)
    ]
    return SLACK_NS + max(later, default=0)


def _slack_at_ns(found: Found, device: str, time_ns: int) -> int:
    """Return how wrong a vehicle may be at a time: what is surely before any damage, the first ledger said."""
    slack_ns = _slack_ns(found, device)
    damaged_ns = min((each.at_ns for each in found.damages if each.device == device), default=0)
    return SLACK_NS if time_ns < damaged_ns - slack_ns else slack_ns


def _outside(time_ns: int, span: Span, slack_ns: int = SLACK_NS) -> str:
    """Say by how much a time is out of a stretch of time; nothing where it is not."""
    low, high = span
    if time_ns < low - slack_ns:
        return f"{_seconds(low - time_ns)} too early"
    return f"{_seconds(time_ns - high)} too late" if time_ns > high + slack_ns else ""


def _seconds(time_ns: int) -> str:
    return f"{time_ns / 1e9:.3f} s"
