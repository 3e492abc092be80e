"""A vehicle that is not heard of, and why it was not when it is again."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

import numpy as np
from msgspec import Meta

from backhaul_codec.protocol.presence import BELIEVED_S
from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.decode.sample_batch import ALIVE, AWAY, MARKS
from backhaul_spark.decode.series import SeriesKey
from backhaul_spark.rules import rule
from backhaul_spark.rules.rounds import firsts
from backhaul_spark.rules.rule import SECOND_NS, AlertDraft, Finding, Rows

_Positive = Annotated[float, Meta(gt=0)]
# Marks that say why nothing came: there was no link, or nothing that could have spoken.
_NOTES = {MARKS["link"]: "link", MARKS["start"]: "start"}


class SilenceSettings(rule.Settings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """`explain_s`: so long after a vehicle is back its own word of the reason is waited for.

    It marks a link that came up at once, or 30 s after its last mark (docs/continuity.md).
    """

    after_s: _Positive = 300.0
    explain_s: _Positive = 45.0


class Silence(rule.Rule):
    """Nothing of the device was stored at the hub for 5 minutes, and its agent was not there.

    By the hub's clock, not the vehicle's: a replayed backlog is a sign of life too. A vehicle whose agent the
    hub sees is not silent, whether it has something to say or not; where the hub itself is not heard, nobody
    knows, and what was said of an agent counts no more. The alert's time is when the limit was reached;
    that of its end when the first message came again.
    """

    name = "silence"
    unit = "s"
    severity = "warning"
    # `heard_ns`: newest message. `back_ns`: first one after a silence whose end was not told yet.
    # `lost_ns`: the last one before that silence. `alive`: the hub sees its agent.
    state = np.dtype(
        [("open", "?"), ("heard_ns", "i8"), ("back_ns", "i8"), ("lost_ns", "i8"), ("alive", "?")]
    )
    Settings = SilenceSettings

    def heard(self, state: Rows, first: Flags, messages: Rows) -> Iterator[Finding]:
        """Find silences between messages, told of already or not, and the vehicle's word on them.

        `first`: (messages,) bool.
        """
        alive, alive_after = _alive(state, first, messages["mark"])
        # That an agent is gone is no sign of life but of one that was there until then.
        living = (messages["mark"] != AWAY) | alive
        device = np.cumsum(first)
        part = state[living]
        yield from (
            _spread(finding, living)
            for finding in self._heard(
                part, firsts(device[living]), messages[living], alive[living]
            )
        )
        state[living] = part
        # The row of a device's last message is the one that stays.
        last = np.flatnonzero(np.r_[first[1:], True])
        newest = np.maximum.accumulate(np.where(living, np.arange(len(living)), -1))[last]
        spoke = newest >= np.flatnonzero(first)
        state[last[spoke]] = state[newest[spoke]]
        state["alive"][last] = alive_after[last]

    def _heard(self, state: Rows, first: Flags, messages: Rows, alive: Flags) -> Iterator[Finding]:
        """Take signs of life alone. `alive`: the hub saw the agent up to each of them."""
        if not len(messages):
            return
        stored = messages["stored_ns"]
        before = np.maximum(np.where(first, 0, np.r_[0, stored[:-1]]), state["heard_ns"])
        gap = (before > 0) & (stored - before > self._after_ns) & ~alive
        told = first & state["open"]
        if (gap & ~told).any():
            yield self._raised(gap & ~told, before)
        yield from self._ends(state, first, gap | told, before, messages)
        last = np.r_[first[1:], True]
        state["heard_ns"][last] = np.maximum(stored, state["heard_ns"])[last]
        state["open"] = False

    def tick(self, state: Rows, now_ns: int, watched_ns: int) -> Iterator[Finding]:
        believed_ns = watched_ns + int(BELIEVED_S * SECOND_NS)
        heard = np.where(
            state["alive"] & (state["heard_ns"] > 0),
            np.maximum(state["heard_ns"], min(believed_ns, now_ns)),
            state["heard_ns"],
        )
        silent = (heard > 0) & ~state["open"] & (now_ns - heard > self._after_ns)
        # One that is back, and away again, was back first.
        waited = now_ns - state["back_ns"] > self.settings.explain_s * SECOND_NS
        told = (state["back_ns"] > 0) & (waited | silent)
        yield self._cleared(told, state["back_ns"].copy(), state["lost_ns"], "")
        state["back_ns"][told] = 0
        yield self._raised(silent, heard)
        state["open"] |= silent

    def _ends(
        self, state: Rows, first: Flags, gap: Flags, before: Ints, messages: Rows
    ) -> Iterator[Finding]:
        """Pair each silence's end with the device's next entry: a reason, or another silence.

        What comes next may be in the same message: a vehicle often begins with its mark.
        """
        mark = messages["mark"]
        pending = np.flatnonzero(first & (state["back_ns"] > 0))
        ends, words = np.flatnonzero(gap), np.flatnonzero(np.isin(mark, list(_NOTES)))
        if not len(pending) + len(ends):
            return
        row = np.r_[pending, ends, words]
        order = np.lexsort((np.repeat([0, 1, 2], [len(pending), len(ends), len(words)]), row))
        row = row[order]
        none = np.zeros(len(words), np.int64)
        back = np.r_[state["back_ns"][pending], messages["stored_ns"][ends], none][order]
        lost = np.r_[state["lost_ns"][pending], before[ends], none][order]
        device = np.cumsum(first)[row]
        follows = np.r_[False, (device[1:] == device[:-1]) & (back[:-1] > 0)]
        note = np.where(back > 0, 0, mark[row])
        for code in (0, *_NOTES):
            at = np.flatnonzero(follows & (note == code))
            if len(at):
                where, ended, since = np.zeros((3, len(mark)), np.int64)
                where[row[at]], ended[row[at]], since[row[at]] = 1, back[at - 1], lost[at - 1]
                yield self._cleared(where > 0, ended, since, _NOTES.get(code, ""))
        newest = np.flatnonzero(np.r_[device[1:] != device[:-1], True])
        # The row of the device's last message is the one that stays.
        last = np.flatnonzero(np.r_[first[1:], True])[device[newest] - 1]
        state["back_ns"][last], state["lost_ns"][last] = back[newest], lost[newest]

    def _raised(self, where: Flags, heard_ns: Ints) -> Finding:
        seconds = np.full(len(where), self.settings.after_s)
        return rule.Finding("raised", where, heard_ns + self._after_ns, seconds,
                            self.settings.after_s)  # fmt: skip

    def _cleared(self, where: Flags, back_ns: Ints, lost_ns: Ints, note: str) -> Finding:
        seconds = (back_ns - lost_ns) / SECOND_NS
        return rule.Finding("cleared", where, back_ns, seconds, self.settings.after_s, note)

    @property
    def _after_ns(self) -> int:
        return int(self.settings.after_s * SECOND_NS)

    def sentence(self, said: AlertDraft, series: SeriesKey | None) -> str:
        lost_ns = said.time_ns - int(said.value * SECOND_NS)
        if said.kind == "raised":
            return f"nothing was heard for {said.limit:g} s, since {_clock(lost_ns)}"
        span = f"from {_clock(lost_ns)} to {_clock(said.time_ns)}"
        if said.note == "link":
            return f"the link was down {span}; the vehicle ran meanwhile"
        if said.note == "start":
            return f"the vehicle's agent did not run, or has started again: silent {span}"
        return f"heard again; silent {span} without an explanation"


def _alive(state: Rows, first: Flags, mark: Ints) -> tuple[Flags, Flags]:
    """Return whether the hub saw each message's agent before it, and whether after it."""
    word = np.isin(mark, (ALIVE, AWAY))
    rows = np.arange(len(mark))
    newest = np.maximum.accumulate(np.where(word, rows, -1))
    begins = np.maximum.accumulate(np.where(first, rows, 0))
    # An open silence: what was said of the agent did not hold.
    known = state["alive"] & ~state["open"]
    after = np.where(newest >= begins, mark[newest] == ALIVE, state["alive"])
    before = np.r_[-1, newest[:-1]] if len(mark) else newest
    return np.where(before >= begins, mark[before] == ALIVE, known), after


def _spread(finding: Finding, living: Flags) -> Finding:
    """Return a finding about some of the messages as one about all."""
    where = np.zeros(len(living), np.bool_)
    time_ns = np.zeros(len(living), np.int64)
    value = np.zeros(len(living))
    where[living], time_ns[living], value[living] = finding.where, finding.time_ns, finding.value
    return rule.Finding(finding.kind, where, time_ns, value, finding.limit, finding.note)


def _clock(time_ns: int) -> str:
    return f"{datetime.fromtimestamp(time_ns / SECOND_NS, UTC):%Y-%m-%d %H:%M:%S} UTC"
