"""The checker: what was acknowledged against what is found, once all faults are over. Pure.

Each rule is a function of its own and returns what breaks it, in words; nothing where it holds.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.kinds import LIVE
from backhaul_codec.protocol.command_errors import ErrorCode
from tests.chaos.evidence import lane_of
from tests.chaos.excuses import Excused
from tests.chaos.rules_time import TIME_RULES
from tests.chaos.service import service_goes_on
from tests.support.command_storm import Storm, starts_max

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from tests.chaos.diary import Told
    from tests.chaos.evidence import Found

    Rule = Callable[[Told, Found], Iterable[str]]
_SHOWN = 5
_LINES_MAX = 20
_RANGES_SHOWN = 100
"""The hub tells no more of a lane (`health/report.py`)."""


def check(told: Told, found: Found) -> list[str]:
    """Return all that is wrong, each with the name of the rule that it breaks."""
    return [f"{rule.__name__}: {what}" for rule in RULES for what in _few(rule(told, found))]


def nothing_is_lost_without_a_receipt(told: Told, found: Found) -> Iterable[str]:
    """Whatever was acknowledged is in UP, or no more is missing than receipts can stand for.

    Or it stood in a damaged ledger alone; where the agent went on with one, it says what it set aside.
    """
    excused = Excused.of(told, found).readings
    lost = told.readings("kept") - found.up.readings.keys() - excused
    for device in sorted({reading.device for reading in lost}):
        missing = {reading for reading in lost if reading.device == device}
        by_lane = Counter(lane_of(reading.node) for reading in missing)
        most = _most_in_a_message(found)
        unnamed = [
            max(0, many - _explained(found, device, lane) * most) for lane, many in by_lane.items()
        ]
        if sum(unnamed) > _set_aside(found, device):
            yield _some("acknowledged, and not at the hub", missing)


def nothing_is_given_up_without_need(_: Told, found: Found) -> Iterable[str]:
    """Only under a ledger whose disk is full there is no room for what was acknowledged."""
    for device, many in sorted(found.up.evicted.items()):
        if device not in found.filled:
            yield f"{device}: gave up {many} messages, and its disk was never full"


def nothing_is_there_twice(_: Told, found: Found) -> Iterable[str]:
    """No reading and no event stands under two places in lanes, but for a head told again.

    What had no place or time yet on a disk that was cloned each of both machines gives one.
    """
    twice_open = {each for c in found.clones for each in (*c.open.readings, *c.open.happenings)}
    twice = [each for each in found.up.twice() if each[0] not in twice_open]
    yield from _any("under two seqs", twice)


def a_place_has_one_message(_: Told, found: Found) -> Iterable[str]:
    """What came again is what came before, to the byte; and all of it can be read.

    But for what two machines wrote behind the end of a disk that was cloned.
    """
    changed = [p for p in found.up.changed if not any(c.may_differ(p) for c in found.clones)]
    yield from _any("two messages of one identity", changed)
    yield from _any("cannot be read", found.up.unreadable)
    for stream in found.report["streams"]:
        if stream["quarantined"]:
            yield f"{stream['quarantined']} messages of {stream['stream']} were quarantined"


def nothing_comes_from_nowhere(told: Told, found: Found) -> Iterable[str]:
    """Nothing is there that was refused, or that nobody published, reported or sent."""
    readings = found.up.readings.keys()
    asked = told.readings("kept") | told.readings("unknown")
    yield from _any("refused, and yet there", told.readings("refused") & readings)
    yield from _any("never published", readings - asked - told.readings("refused"))
    events = told.happenings("kept") | told.happenings("unknown") | told.happenings("refused")
    yield from _any("never reported", found.up.happenings.keys() - events)
    commands = told.commands("kept") | told.commands("unknown") | told.commands("refused")
    yield from _any("commands that nobody sent", found.commands.keys() - commands)


def events_are_there_once(told: Told, found: Found) -> Iterable[str]:
    """Whatever event was acknowledged is in UP, and TWIN_EVENTS has it as often as UP has."""
    happened = found.up.happenings
    excused = Excused.of(told, found).happenings
    lost = told.happenings("kept") - happened.keys() - excused
    for device in sorted({event.device for event in lost}):
        missing = {event for event in lost if event.device == device}
        if not _damaged(found, device) or len(missing) > _explained(found, device, LIVE):
            yield _some("events lost", missing)
    yield from _any("events refused, and yet there", told.happenings("refused") & happened.keys())
    yield from _any("not in TWIN_EVENTS", found.up.event_copies - found.twin_events)
    yield from _any("only in TWIN_EVENTS", found.twin_events - found.up.event_copies)


def both_ends_have_the_same_heads(_: Told, found: Found) -> Iterable[str]:
    """Hub and vehicle agree on every head, tombstones included."""
    for device, (hub, vehicle) in found.heads.items():
        differing = {key for key in hub | vehicle if hub.get(key) != vehicle.get(key)}
        shown = {key: (hub.get(key), vehicle.get(key)) for key in sorted(differing)[:_SHOWN]}
        if differing:
            yield f"{device}: {len(differing)} heads differ (hub, vehicle): {shown}"


def config_writes_stand(told: Told, found: Found) -> Iterable[str]:
    """A series with one writer holds its last acknowledged write, or a later one without answer."""
    if not found.heads:
        return
    asked = told.writes("kept") | told.writes("unknown")
    stands = told.writes("kept") - Excused.of(told, found).writes
    for device, node in sorted({(write.device, write.node) for write in stands}):
        kept = max(w.value for w in stands if (w.device, w.node) == (device, node))
        value = found.heads[device][0].get(("", node, "number", ""), (None,))[0]
        values = {w.value for w in asked if (w.device, w.node) == (device, node)}
        if value is None or value < kept or value not in values:
            yield f"{device} {node}: {kept} was acknowledged, the hub holds {value}"


def commands_ran_as_said(told: Told, found: Found) -> Iterable[str]:
    """Each command that was acknowledged, or has come, has come to an end that its starts agree with.

    An agent carries out one at a time, so each of its deaths can have cut one short, and no more; for
    another reason one is given up only in a new epoch of the ledger, which cannot know what the former
    ran: after damage, or where the agent was started and had no word from the hub. What
    was sent while the hub's store was about to be put back may be gone altogether, and of what was sent
    before hub.db was lost there may be no record, or one that says less. A ledger that an older copy replaced may start again
    what it had started since the copy was made, as often as if it never had, and a machine what its clone has started: if no word of that has left the vehicle nobody knows.
    """
    kept, unknown = told.commands("kept"), told.commands("unknown")
    gone = kept - found.commands.keys() - found.starts.keys()
    for low_ns, high_ns in found.rolled_back:
        kept -= gone & told.commands_between(low_ns, high_ns)
    judged = kept | (unknown & (found.commands.keys() | found.starts.keys()))
    judged -= Excused.of(told, found).forgotten
    made = Storm(sent=sorted(judged), commands=found.commands)
    again = _forgotten_starts(found)
    made.starts.update(
        {
            id_: n - min(again[id_], max(n - 1, 0))
            for id_, n in found.starts.items()
            if id_ in judged
        }
    )
    yield from made.complaints()
    yield from _any("started, and never sent", found.starts.keys() - kept - unknown)
    cut = Counter(each["device"] for each in found.commands.values() if cut_short(each))
    for device, many in sorted(cut.items()):
        if many > found.deaths[device]:
            yield f"{device}: {many} were cut short, and its agent died {found.deaths[device]} times"
    for id_, each in sorted(found.commands.items()):
        given_up = each["state"] == "interrupted" and not cut_short(each)
        new = each["device"] in found.up.renewed or _damaged(found, each["device"])
        if given_up and not new:
            yield f"{id_}: interrupted, and no new epoch began: {each.get('error')}"


def the_watermark_is_true(_: Told, found: Found) -> Iterable[str]:
    """The hub's word on each lane is what UP holds: never past a hole, and no hole unnamed.

    A hole is explained by the vehicle's receipt in UP alone.
    """
    for lane, said in found.lanes():
        seqs = found.up.seqs(lane)
        receipted = found.up.receipted(lane)
        if found.rolled_back and _damaged(found, lane.device):
            # A receipt that UP lost after it was read may be gone with the ledger that had it.
            receipted |= {seq for low, high in said["explained"] for seq in range(low, high + 1)}
        known = seqs | receipted
        bodies = [body for place, body in found.up.bodies.items() if place.lane == lane]
        is_so: dict[str, Any] = {
            "watermark": _prefix(known),
            "highest_seq": max(seqs, default=0),
            "gaps": _holes(known, max(seqs, default=0))[:_RANGES_SHOWN],
            "explained": _ranges(receipted)[:_RANGES_SHOWN],
            "messages": len(seqs),
            "bytes": sum(map(len, bodies)),
        }
        for what, value in is_so.items():
            if said[what] != value:
                yield f"{lane}: {what}: the hub says {said[what]}, UP holds {value}"
        # What UP lost and got again is a repeat to the hub, and UP does not show it.
        again = said["repeats"] - found.up.repeats[lane]
        if not 0 <= again <= len(found.rolled_back) * len(seqs):
            yield f"{lane}: repeats: the hub says {again} more than UP holds"


def nothing_is_owed_at_rest(_: Told, found: Found) -> Iterable[str]:
    """Where nothing is at fault any more, no lane has gaps and no former epoch is waited for."""
    for lane, said in found.lanes():
        if said["gaps"]:
            yield f"{lane}: gaps {said['gaps'][:_SHOWN]}"
    for device in found.report["devices"]:
        if device["former"]:
            yield f"{device['device']}: former epochs owe {device['former'][:_SHOWN]}"


def it_comes_to_rest(_: Told, found: Found) -> Iterable[str]:
    """No vehicle still holds what it has not framed, or what the hub has not proved."""
    return found.restless


def two_machines_are_told(_: Told, found: Found) -> Iterable[str]:
    """Where two machines with one identity sent messages that differ in one place, the hub says so."""
    yield from _any(
        "two machines wrote, and the hub never said so", found.forked() - found.told_two
    )


def a_second_agent_is_refused(_: Told, found: Found) -> Iterable[str]:
    """Beside an agent that runs on a ledger no other one starts, and it says whose that is."""
    return found.not_refused


def no_hour_is_complete_over_a_hole(told: Told, found: Found) -> Iterable[str]:
    """All that was acknowledged within an hour that is reported complete is in UP.

    But for what went with a ledger that an older copy replaced, or with a second machine, if nobody can know of it.
    """
    unknowable = Excused.of(told, found).unknowable
    for device, hours in found.complete_hours.items():
        for hour_ns in hours:
            kept = told.kept_between(device, hour_ns, hour_ns + HOUR_NS)
            missing = kept - found.up.readings.keys() - unknowable
            yield from _any(f"{device}: hour {hour_ns} is complete, and lacks", missing)


def the_history_is_what_up_holds(told: Told, found: Found) -> Iterable[str]:
    """The table has as many rows of each reading as UP has places; where a run has made a table.

    A frame that says that it was sent before adds a row where it is the only one. What UP lost after it was read, and a damaged ledger could not send again, the table alone has, once.
    """
    if found.history is None:
        return
    again = found.up.said_again
    in_up = Counter(
        {
            reading: max(1, sum(place not in again for place in places))
            for reading, places in found.up.readings.items()
        }
    )
    yield from _any("in UP, and not in the history", in_up - found.history)
    gone = Excused.of(told, found).readings - in_up.keys() if found.rolled_back else set()
    yield from _any("more often in the history than in UP", found.history - in_up - Counter(gone))


def what_expands_is_there_once(_: Told, found: Found) -> Iterable[str]:
    """Each point of a frame that expands is in UP where it was acknowledged, and is one row of the table.

    Not judged is a vehicle whose ledger was damaged, or had no room.
    """
    sound = {
        device
        for device in found.expanding.keys() | found.up.expanding.keys()
        if not _damaged(found, device) and device not in found.filled
    }
    for device in sorted(sound):
        kept, there = found.expanding[device], found.up.expanding[device]
        if there < kept:
            yield f"{device}: {kept} points were acknowledged of frames that expand, UP has {there}"
        rows = found.history_expanding[device]
        if found.history is not None and rows != there:
            yield f"{device}: UP has {there} points of frames that expand, the table {rows} rows"


RULES: tuple[Rule, ...] = (
    nothing_is_lost_without_a_receipt,
    nothing_is_given_up_without_need,
    nothing_is_there_twice,
    a_place_has_one_message,
    nothing_comes_from_nowhere,
    events_are_there_once,
    both_ends_have_the_same_heads,
    config_writes_stand,
    commands_ran_as_said,
    the_watermark_is_true,
    nothing_is_owed_at_rest,
    it_comes_to_rest,
    a_second_agent_is_refused,
    two_machines_are_told,
    no_hour_is_complete_over_a_hole,
    the_history_is_what_up_holds,
    what_expands_is_there_once,
    service_goes_on,
    *TIME_RULES,
)


def _few(wrong: Iterable[str]) -> list[str]:
    """Return the first of what is wrong, and how many there are besides."""
    said = list(wrong)
    more = len(said) - _LINES_MAX
    return said if more <= 0 else [*said[:_LINES_MAX], f"and {more} more"]


def _any(what: str, wrong: Collection[Any]) -> Iterable[str]:
    if wrong:
        yield _some(what, wrong)


def _some(what: str, wrong: Collection[Any]) -> str:
    return f"{len(wrong)} {what}: {', '.join(sorted(map(str, wrong))[:_SHOWN])}"


def _forgotten_starts(found: Found) -> Counter[str]:
    """Return how many starts of a command older copies of a ledger may have forgotten, by its id.

    Each copy may know of none of those that its ledger allows.
    """
    spans = [(each.device, each.since_ns, each.at_ns) for each in found.damages if each.put_back]
    forgotten: Counter[str] = Counter()
    for id_, each in found.commands.items():
        for device, since_ns, at_ns in spans:
            if each["device"] != device or each["queued_ns"] > at_ns:
                continue
            if not each.get("ended_ns") or each["ended_ns"] >= since_ns:
                forgotten[id_] += starts_max(each["name"])
    return forgotten


def cut_short(command: dict[str, Any]) -> bool:
    """Whether its run was; what was sent before a ledger's epoch began is interrupted by no death."""
    return command.get("code") in (ErrorCode.CUT_SHORT, ErrorCode.CUT_SHORT_LATE)


def _prefix(seqs: set[int]) -> int:
    seq = 0
    while seq + 1 in seqs:
        seq += 1
    return seq


def _holes(seqs: set[int], high: int) -> list[list[int]]:
    """Return the ranges below `high` of what is not in `seqs`."""
    edges = sorted({0, high + 1} | {seq for seq in seqs if seq <= high})
    return [[low + 1, up - 1] for low, up in pairwise(edges) if up > low + 1]


def _ranges(seqs: set[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for seq in sorted(seqs):
        if found and found[-1][1] == seq - 1:
            found[-1][1] = seq
        else:
            found.append([seq, seq])
    return found


def _explained(found: Found, device: str, lane: str) -> int:
    """Count the messages of a lane that receipts may stand for.

    Where nothing was damaged and no disk was full, a vehicle's word that something is gone is no excuse;
    and only damage makes a row no good.
    """
    seqs = {
        (where, seq)
        for where, receipts in found.up.receipts.items()
        if (where.device, where.lane) == (device, lane)
        for receipt in receipts
        if _damaged(found, device) or (device in found.filled and not receipt.corrupt)
        for seq in range(receipt.low, receipt.high + 1)
    }
    return len(seqs)


def _damaged(found: Found, device: str) -> bool:
    return any(damage.device == device for damage in found.damages)


def _set_aside(found: Found, device: str) -> int:
    """Count the points that a device has named as set aside, out of a damaged ledger."""
    return found.up.set_aside[device] if _damaged(found, device) else 0


def _most_in_a_message(found: Found) -> int:
    in_message: dict[Any, int] = {}
    for places in found.up.readings.values():
        for place in places:
            in_message[place] = in_message.get(place, 0) + 1
    return max(in_message.values(), default=0)
