"""Whether two machines use one identity: what gives them away, what does not, and for how long."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_hub.vehicles.identities import (
    KEPT_MAX,
    LASTS_NS,
    RUNS_KEPT_MAX,
    SWAP_NS_MIN,
    Evidence,
    Identities,
    Identity,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

S = 1_000_000_000
DEVICE = "VID-007"
T0 = 1_780_000_000 * S


class Story:
    """A device's machines by one letter each: machine, start, run; and where the leaf is."""

    def __init__(self) -> None:
        self.judge = Identities()
        self.now_ns = T0

    def saw(
        self,
        who: Sequence[str],
        *,
        after_s: float = 600,
        address: str = "10.0.0.1",
        other_login: bool = False,
    ) -> None:
        self.now_ns += int(after_s * S)
        report = VehicleReport(who[0], who[1], who[2], "1.0")
        self.judge.saw(DEVICE, report, address, self.now_ns, other_login=other_login)

    def judged(self, *, after_ns: int = 0) -> Evidence | None:
        return self.judge.judged(DEVICE, self.now_ns + after_ns)

    def kind(self, *, after_ns: int = 0) -> str:
        found = self.judged(after_ns=after_ns)
        return found.kind if found else ""


@pytest.mark.parametrize(
    ("back", "kind"), [("b22", "changed"), ("a12", "changed"), ("a22", "changed")]
)
def test_a_machine_that_is_enrolled_anew_took_the_place_of_the_former(back: str, kind: str) -> None:
    story = Story()
    story.saw("a11")
    story.saw("b21", after_s=1, other_login=True)
    story.saw(back, after_s=1, other_login=back != "b22")
    assert story.kind() == kind
    story.saw("c33", after_s=1)
    assert story.kind() == "together"


@pytest.mark.parametrize(
    ("seen", "kind"),
    [
        (["a11"], ""),
        (["a11", "a11", "a11"], ""),
        (["a11", "a12", "a13"], ""),  # the agent was started anew
        (["a11", "a22", "a33"], ""),  # the machine was
        (["a11", "b22"], "changed"),  # another for good
        (["a11", "b22", "b22", "b33"], "changed"),
        (["a11", "b22", "c33"], "changed"),
        (["a11", "b22", "a33"], "alternate"),  # another, and back
        (["a11", "a22", "a13"], "alternate"),  # a copied card: one start is back after another
        (["a11", "a12", "a11"], "alternate"),  # two agents at once
        (["a11", "b22", "a33", "b44"], "alternate"),
    ],
)
def test_what_gives_two_machines_away(seen: list[str], kind: str) -> None:
    story = Story()
    for who in seen:
        story.saw(who)
    assert story.kind() == kind


def test_both_machines_and_both_addresses_are_named() -> None:
    story = Story()
    story.saw("a11", address="10.0.0.1")
    story.saw("b22", address="10.9.9.9")
    story.saw("a11", address="10.0.0.1")
    found = story.judged()
    assert found is not None
    assert found.two
    assert found.one is not None
    assert found.other is not None
    assert (found.one.machine, found.one.address) == ("b", "10.9.9.9")
    assert (found.other.machine, found.other.address) == ("a", "10.0.0.1")


def test_a_machine_replaced_for_good_is_said_for_a_day() -> None:
    story = Story()
    story.saw("a11")
    story.saw("b22")
    found = story.judged(after_ns=LASTS_NS - 1)
    assert found is not None
    assert not found.two
    assert story.kind(after_ns=LASTS_NS) == ""


def test_two_that_alternate_are_told_until_a_day_after_the_last_time() -> None:
    story = Story()
    for _ in range(5):
        story.saw("a11", after_s=3600)
        story.saw("b22", after_s=3600)
    since = story.judged()
    assert since is not None
    assert since.since_ns == T0 + 3 * 3600 * S, "since the first was back"
    for _ in range(3):
        story.saw("b22", after_s=3600)
    assert story.kind() == "alternate"
    assert story.kind(after_ns=LASTS_NS) == "", "it has stayed one machine"
    story.saw("a11", after_s=7 * 86_400)
    again = story.judged()
    assert again is not None
    assert again.since_ns == story.now_ns, "a week later it begins anew"


def test_nobody_replaces_a_machine_within_a_minute() -> None:
    for after_s, kind in ((59, "together"), (60, "changed")):
        story = Story()
        story.saw("a11")
        story.saw("b22", after_s=after_s)
        assert story.kind() == kind
    assert SWAP_NS_MIN == 60 * S


def test_a_third_machine_does_not_hide_that_two_alternate() -> None:
    story = Story()
    for who in ("a11", "b22", "a11", "c33"):
        story.saw(who)
    assert story.kind() == "alternate"


@pytest.mark.parametrize(
    ("seen", "machines"),
    [([], (None, None)), (["a11"], ("a11", None)), (["a11", "a12"], ("a12", None)),
     (["a11", "a22"], ("a11", "a22")), (["a11", "b22", "b23"], ("a11", "b23"))],
)  # fmt: skip
def test_a_fork_names_the_machines_that_are_known(
    seen: list[str], machines: tuple[str | None, str | None]
) -> None:
    story = Story()
    for who in seen:
        story.saw(who)
    story.judge.forked(DEVICE, "lane bulk, epoch 7, seq 12", story.now_ns)
    found = story.judged()
    assert found is not None
    assert found.two
    assert (found.kind, found.why) == ("fork", "lane bulk, epoch 7, seq 12")
    assert tuple("".join(it.key) if it else None for it in (found.one, found.other)) == machines
    assert story.kind(after_ns=LASTS_NS) == ""
    story.saw("c99")
    assert story.kind() == "fork", "a machine that is new is less than a fork"


def test_an_agent_that_starts_over_and_over_crowds_nothing_out() -> None:
    story = Story()
    story.saw("a11")
    for run in range(100):
        story.saw(("b", "2", str(run)))
    kept = story.judge.of(DEVICE).seen
    assert len(kept) == 1 + RUNS_KEPT_MAX
    story.saw("a12")
    assert story.kind() == "alternate"


@given(st.lists(st.tuples(*[st.sampled_from("abcdefghijkl")] * 3), max_size=60))
def test_what_is_kept_is_bounded_and_survives_being_stored(
    seen: list[tuple[str, str, str]],
) -> None:
    story = Story()
    for who in seen:
        story.saw(who)
        known = story.judge.of(DEVICE)
        assert len(known.seen) <= KEPT_MAX
        assert known.now is not None
        assert known.now.key == who
        assert len({each.key for each in known.seen}) == len(known.seen)
        stored = msgspec.json.decode(msgspec.json.encode(known), type=Identity)
        assert stored == known


def test_a_vehicle_that_says_no_machine_is_not_judged() -> None:
    story = Story()
    story.judge.saw(DEVICE, VehicleReport("", "", "", "1.0"), "", T0)
    assert story.judge.of(DEVICE).seen == ()


@pytest.mark.parametrize(
    ("seen", "answerer"),
    [
        ([], None),  # an agent that does not say which machine it runs on
        (["a11"], "a"),
        (["a11", "a22", "a33"], "a"),  # started anew
        (["a11", "b22"], ""),  # replaced: the first one's disk may be somewhere
        (["a11", "b22", "a33"], ""),
        (["a11", "a22", "a11"], ""),  # a copied card: they look like one machine
    ],
)
def test_who_may_say_that_something_is_lost(seen: list[str], answerer: str | None) -> None:
    story = Story()
    for who in seen:
        story.saw(who)
    story.now_ns += 30 * LASTS_NS
    assert story.judge.answerer(DEVICE) == answerer, "however long ago that was"


def test_a_fork_of_one_machine_leaves_it_the_answerer() -> None:
    story = Story()
    story.saw("a11")
    story.judge.forked(DEVICE, "both wrote", story.now_ns)
    assert story.judge.answerer(DEVICE) == "a", "its ledger was put back"


def test_an_operator_says_that_one_machine_is_left() -> None:
    story = Story()
    for who in ("a11", "b22", "a11"):
        story.saw(who)
    story.judge.changed.clear()
    kept = story.judge.settle(DEVICE, story.now_ns)
    assert kept is not None
    assert (kept.machine, story.judge.answerer(DEVICE), story.kind()) == ("a", "a", "")
    assert story.judge.changed == {DEVICE}, "it is stored"
    story.judge.forked(DEVICE, "both wrote", story.now_ns)
    assert story.kind() == "", "what was seen before is settled"
    story.saw("a11")
    story.judge.forked(DEVICE, "both wrote", story.now_ns)
    assert story.kind() == "fork", "what comes later is not"
    story.saw("b33")
    assert story.judge.answerer(DEVICE) == ""


def test_a_device_that_was_never_heard_cannot_be_settled() -> None:
    judge = Identities()
    assert judge.settle(DEVICE, T0) is None
    assert not judge.changed
