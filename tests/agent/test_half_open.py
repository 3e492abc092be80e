"""A half-open link while there is something to say: asked about, given up, and not again and again."""

from __future__ import annotations

from backhaul_agent.leaf.half_open import ASK_LOOKS, CUT_LOOKS, HalfOpen, HalfOpenStep
from backhaul_agent.leaf.link_state import LinkTraffic

ASK, CUT = HalfOpenStep.ASK, HalfOpenStep.CUT


class Link:
    """The counts of a link, and what is to be done look by look."""

    def __init__(self) -> None:
        self.half_open = HalfOpen()
        self.server, self.sent, self.received = "S1", 5, 5

    def look(self, sent: int = 0, received: int = 0) -> HalfOpenStep:
        self.sent, self.received = self.sent + sent, self.received + received
        traffic = LinkTraffic(self.server, self.sent, 0, self.received, 0)
        return self.half_open.look(traffic)

    def steps(self, looks: int, sent: int = 0) -> dict[int, HalfOpenStep]:
        """Return what was to be done, by the number of the look."""
        found = {number: self.look(sent) for number in range(1, looks + 1)}
        return {number: step for number, step in found.items() if step is not HalfOpenStep.REST}


def heard() -> Link:
    link = Link()
    link.look()
    link.look(received=1)
    return link


def test_a_hub_that_says_nothing_is_asked_and_then_dialled_anew() -> None:
    link = heard()
    assert link.steps(10 * CUT_LOOKS, sent=1) == {ASK_LOOKS: ASK, CUT_LOOKS: CUT}
    assert link.half_open.cuts == 1


def test_one_word_that_nothing_answers_is_enough() -> None:
    link = heard()
    link.look(sent=1)
    assert link.steps(CUT_LOOKS - 1) == {ASK_LOOKS - 1: ASK, CUT_LOOKS - 1: CUT}


def test_an_idle_link_and_one_that_is_answered_are_left_alone() -> None:
    link = heard()
    assert link.steps(1000) == {}
    for _ in range(10):
        assert link.steps(ASK_LOOKS - 1, sent=1) == {}
        link.look(sent=1, received=1)
    assert link.steps(ASK_LOOKS, sent=1) == {ASK_LOOKS: ASK}
    link.look(received=1)
    assert link.steps(1000) == {}, "the answer has come, and nothing was said since"


def test_a_link_over_which_the_hub_has_said_nothing_yet_is_not_given_up() -> None:
    """Its control plane may be away: the servers' pings still look whether the link is there."""
    link = heard()
    link.steps(CUT_LOOKS, sent=1)
    link.half_open.begin_anew()
    assert link.steps(1000, sent=1) == {}
    link.look(received=1)
    assert link.steps(CUT_LOOKS, sent=1) == {ASK_LOOKS: ASK, CUT_LOOKS: CUT}


def test_a_server_that_began_anew_counts_from_nothing() -> None:
    link = heard()
    link.steps(ASK_LOOKS, sent=1)
    link.server, link.sent, link.received = "S2", 0, 5
    assert link.steps(CUT_LOOKS) == {}
