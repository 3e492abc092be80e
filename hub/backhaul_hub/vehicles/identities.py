"""Whether two machines use one vehicle's identity: a judge of the sightings of both. Pure.

A disk image that was copied, an identity document that was used twice, a second agent: both say they are VID-007,
and what one sends hides what the other does. Three things give them away:

- a machine, one of its starts, or one run of its agent is back after another one was there: alone that cannot
  happen, as each start and run is new, and a machine that was replaced stays away
- another machine is there within a minute of the last one: nobody replaces hardware that fast
- a fork: two messages with one place in a lane (`forked`, told by the one who sees lanes)

A machine that is replaced once, for good, is no alarm: it is said for a day, as `changed`. So is one that comes with
another login, however soon: nobody gets in by the former one any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from backhaul_codec.protocol.vehicle_report import VehicleReport

KEPT_MAX = 8
"""Sightings of each device: a machine, with a start of it, and a run of its agent."""
RUNS_KEPT_MAX = 3
"""Of these, those of one machine: an agent that is started over and over must not crowd out the rest."""
SWAP_NS_MIN = 60 * 1_000_000_000
"""A machine that is there sooner after another did not replace it."""
LASTS_NS = 24 * 3600 * 1_000_000_000
"""For so long after it was last seen each is told."""

Kind = Literal["alternate", "together", "fork", "changed"]


class Sighting(msgspec.Struct, frozen=True):
    """A machine, one of its starts, and one run of its agent there. `address`: of its leaf, at the hub."""

    machine: str
    boot: str
    run: str
    version: str
    address: str
    first_ns: int
    last_ns: int

    @property
    def key(self) -> tuple[str, str, str]:
        """Return a key that no two runs have in common."""
        return self.machine, self.boot, self.run


class Evidence(msgspec.Struct, frozen=True):
    """The last sighting that gives two machines away, or that one was replaced.

    `since_ns`: when that began. `one`, `other`: the two, the one that was there before first; None where a
    fork is all that is known. `why`: for people.
    """

    kind: Kind
    since_ns: int
    last_ns: int
    one: Sighting | None
    other: Sighting | None
    why: str = ""

    @property
    def two(self) -> bool:
        """Whether it says that two machines use the identity, and not that one took the other's place."""
        return self.kind != "changed"


class Identity(msgspec.Struct, frozen=True):
    """The sightings of one device; the newest is the last."""

    seen: tuple[Sighting, ...] = ()
    evidence: Evidence | None = None
    settled_ns: int = 0
    """When an operator has said last that one machine alone uses it; 0: never."""

    @property
    def now(self) -> Sighting | None:
        """Return the machine that was heard last."""
        return self.seen[-1] if self.seen else None


class Identities:
    """Takes in vehicles' claims of identity, and judges them.

    `changed` collects the devices of which there is something to be stored.
    """

    def __init__(self) -> None:
        self.changed: set[str] = set()
        self._known: dict[str, Identity] = {}

    def restore(self, known: Mapping[str, Identity]) -> None:
        """Take in the stored rows."""
        self._known.update(known)

    def of(self, device: str) -> Identity:
        """Return the sightings of a device."""
        return self._known.get(device) or Identity()

    def saw(
        self,
        device: str,
        report: VehicleReport,
        address: str,
        now_ns: int,
        *,
        other_login: bool = False,
    ) -> None:
        """Take in one report of a vehicle, that came while its leaf was at `address`.

        `other_login`: whether it was enrolled anew since the last report, so that login is shut out.
        """
        if not report.machine:
            return
        known = self.of(device)
        fresh = Sighting(
            *(report.machine, report.boot, report.run, report.version, address), now_ns, now_ns
        )
        same = next((each for each in known.seen if each.key == fresh.key), None)
        if same is not None:
            fresh = msgspec.structs.replace(fresh, first_ns=same.first_ns)
        evidence = _evidence(known, fresh, now_ns, other_login=other_login) or known.evidence
        others = [each for each in known.seen if each.key != fresh.key]
        self._keep(device, Identity((*_bounded(others, fresh), fresh), evidence, known.settled_ns))

    def forked(self, device: str, why: str, last_ns: int) -> None:
        """Take in that two messages of a vehicle had one place; may be repeated.

        `why`: which place, for people. `last_ns`: when a message came last where that is so. A disk that was
        put back from a copy forks, too: where no second machine was ever seen, `other` of the evidence is None.
        """
        known, before = self.of(device), self.of(device).evidence
        if last_ns <= known.settled_ns:
            return
        evidence = Evidence("fork", last_ns, last_ns, *_last_two(known.seen), why)
        if before is not None and before.two and abs(last_ns - before.last_ns) < LASTS_NS:
            # Which machines it was, that one may know better.
            last_ns = max(last_ns, before.last_ns)
            evidence = msgspec.structs.replace(
                before if before.other is not None else evidence,
                since_ns=min(before.since_ns, evidence.since_ns),
                last_ns=last_ns,
                why=why,
            )
        elif before is not None and before.two and last_ns < before.last_ns:
            return  # older than what is told
        if evidence != before:
            self._keep(device, Identity(known.seen, evidence, known.settled_ns))

    def answerer(self, device: str) -> str | None:
        """Return the machine that may declare messages lost that its ledger does not know.

        Another machine may have it, where one was ever heard: then "", nobody may, until an operator
        says that one alone is left (`settle`). None: it has not said which machine it is.
        """
        known = self.of(device)
        machines = {each.machine for each in known.seen}
        if not machines:
            return None
        two = known.evidence is not None and known.evidence.kind in ("alternate", "together")
        return "" if two or len(machines) > 1 else machines.pop()

    def settle(self, device: str, now_ns: int) -> Sighting | None:
        """Take in that the machine that was heard last is the only one; return it, None for none."""
        now = self.of(device).now
        if now is not None:
            self._keep(device, Identity((now,), None, now_ns))
        return now

    def judged(self, device: str, now_ns: int) -> Evidence | None:
        """Return the word for a device now."""
        evidence = self.of(device).evidence
        if evidence is None or now_ns - evidence.last_ns >= LASTS_NS:
            return None
        return evidence

    def doubted(self) -> set[str]:
        """Return all devices for which `judged` may have a word, and some more."""
        return {device for device, known in self._known.items() if known.evidence is not None}

    def _keep(self, device: str, identity: Identity) -> None:
        self._known[device] = identity
        self.changed.add(device)


def _evidence(
    known: Identity, fresh: Sighting, now_ns: int, *, other_login: bool
) -> Evidence | None:
    """Return the fact that another sighting than the last one gives away; None for nothing."""
    before = known.now
    if before is None or before.key == fresh.key:
        return None
    # What came first that is another: the machine, its start, or its agent's run.
    level = next(n for n in range(3) if before.key[n] != fresh.key[n]) + 1
    back = any(each.key[:level] == fresh.key[:level] for each in known.seen)
    if back and not other_login:
        return _lasting(known, Evidence("alternate", now_ns, now_ns, before, fresh))
    if level > 1:
        return None  # it was started anew
    at_once = now_ns - before.last_ns < SWAP_NS_MIN
    kind: Kind = "together" if at_once and not other_login else "changed"
    told = known.evidence
    if kind == "changed" and told is not None and told.two and now_ns - told.last_ns < LASTS_NS:
        return None  # what is worse is told already
    return _lasting(known, Evidence(kind, now_ns, now_ns, before, fresh))


def _lasting(known: Identity, fresh: Evidence) -> Evidence:
    """Return the evidence with the time at which it began, where it goes on."""
    before = known.evidence
    if before is None or not (before.two and fresh.two):
        return fresh
    if fresh.last_ns - before.last_ns >= LASTS_NS:
        return fresh
    return msgspec.structs.replace(fresh, since_ns=before.since_ns, why=fresh.why or before.why)


def _last_two(seen: tuple[Sighting, ...]) -> tuple[Sighting | None, Sighting | None]:
    """Return the newest sighting of another machine or start, and the newest of all."""
    if not seen:
        return None, None
    newest = seen[-1]
    before = [each for each in seen if each.key[:2] != newest.key[:2]]
    return (before[-1], newest) if before else (newest, None)


def _bounded(others: list[Sighting], fresh: Sighting) -> list[Sighting]:
    """Drop the oldest of those beside the newest: first runs of one machine, then any others."""
    runs: dict[str, int] = {fresh.machine: 1}
    kept = []
    for each in reversed(others):
        runs[each.machine] = runs.get(each.machine, 0) + 1
        if runs[each.machine] <= RUNS_KEPT_MAX:
            kept.append(each)
    return kept[: KEPT_MAX - 1][::-1]


def told(device: str, evidence: Evidence) -> str:
    """Describe the sightings, for people: both machines, and where both were."""
    names = [_named(each) for each in (evidence.one, evidence.other) if each is not None]
    if not evidence.two:
        return " now, before it ".join(reversed(names))
    which = " and ".join(names) or "it has not said which"
    why = f"; {evidence.why}" if evidence.why else ""
    if evidence.kind == "fork" and evidence.other is None:
        why += (
            "; no second machine was heard: its disk or ledger may have been put back from a copy"
        )
    return f"two machines use the identity of {device}: {which}{why}"


def _named(sighting: Sighting) -> str:
    address = f" at {sighting.address}" if sighting.address else ""
    return f"machine {sighting.machine}, started as {sighting.boot},{address}".rstrip(",")
