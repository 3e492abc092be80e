"""Run rules over a bucket's batches. Pure: arrays in, alerts out; no Spark, no clock.

The same engine runs in the stream (actor.py) and over the table (recompute.py).

Samples newer than what a rule had of that signal go on where it was. Older ones, a backlog that comes
after something newer, go to a second state of their own, kept only while it lasts: a rule sees event
time run forward in both. What the second state finds is late, whatever the clock says. Which is which
goes by the order in which the hub stored the messages, so it is the same wherever batches end.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.decode.sample_batch import ALIVE, AWAY, UNTIMELY, Batch
from backhaul_spark.rules import statistics
from backhaul_spark.rules.alert import Alert
from backhaul_spark.rules.repeats import first_times
from backhaul_spark.rules.rounds import firsts, overtaken, replays, rounds
from backhaul_spark.rules.rule import SECOND_NS, AlertDraft, Finding, Rule, Samples, Spoken
from backhaul_spark.rules.table import Table
from backhaul_spark.rules.twins import Twins, of_rule, times_of

if TYPE_CHECKING:
    from backhaul_spark.rules.plan import Plan

# A replay that stood still for so long begins anew when it goes on.
REPLAY_NS = 3600 * SECOND_NS


class Engine:
    """All rules of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._hearing = [s for s in plan.rules if type(s.rule).heard is not Rule.heard]
        self._ticking = [s for s in plan.rules if type(s.rule).tick is not Rule.tick]
        self._stepping = [s for s in plan.rules if type(s.rule).step is not Rule.step]

    def take(self, twins: Twins, batch: Batch, now_ns: int) -> tuple[list[Alert], NDArray[np.intp]]:
        """Take in a batch of one bucket.

        Args:
            twins: the bucket's state; changed.
            batch: from any number of messages.
            now_ns: when the batch runs. An alert older than late_after_s gets no command.

        Returns:
            The alerts, and the rows of `twins.devices` that the batch spoke of.
        """
        twins.hear(batch.heads)
        twins.watched_ns = max(twins.watched_ns, batch.watched_ns)
        # The hub's words on who is there stand in no lane.
        spoken_here = batch.messages["mark"] < ALIVE
        fresh = np.zeros(len(batch.messages), np.bool_)
        fresh[spoken_here] = first_times(twins.lanes, batch.messages[spoken_here])
        rows = twins.rows(batch.messages["device"], batch.devices)
        living = batch.messages["mark"] != AWAY
        stored_ns = twins.devices["device"]["stored_ns"]
        np.maximum.at(stored_ns, rows[living], batch.messages["stored_ns"][living])
        alerts = list(self._heard(twins, batch, rows, now_ns))
        samples = _Sorted(batch, rows, fresh, twins)
        self._count(twins, samples)
        for spoken in self._stepping:
            alerts += self._stepped(twins, spoken, samples, now_ns)
        return alerts, np.unique(rows[living])

    def tick(
        self, twins: Twins, now_ns: int, until_ns: int
    ) -> tuple[list[Alert], NDArray[np.intp]]:
        """Look at every device. `until_ns`: all that was stored up to then has been taken in."""
        twins.forget(now_ns - int(self.plan.forget_after_s * SECOND_NS))
        twins.late.keep(twins.late["device"]["stored_ns"] > until_ns - REPLAY_NS)
        alerts: list[Alert] = []
        told = np.zeros(len(twins.devices), np.bool_)
        for spoken in self._ticking:
            state = twins.devices[of_rule(spoken.rule)]
            for finding in spoken.rule.tick(state, until_ns, twins.watched_ns):
                alerts += self._alerts(twins, spoken, finding, twins.devices.keys, None, now_ns)
                told |= finding.where
        return alerts, np.flatnonzero(told)

    def _heard(
        self, twins: Twins, batch: Batch, rows: NDArray[np.intp], now_ns: int
    ) -> Iterator[Alert]:
        if not len(rows):
            return
        order = np.lexsort((batch.messages["stored_ns"], rows))
        messages, row = batch.messages[order], rows[order]
        first = firsts(row)
        last = np.r_[first[1:], True]
        for spoken in self._hearing:
            section = twins.devices[of_rule(spoken.rule)]
            state = section[row]
            for finding in spoken.rule.heard(state, first, messages):
                yield from self._alerts(twins, spoken, finding, messages["device"], None, now_ns)
            section[row[last]] = state[last]

    def _count(self, twins: Twins, samples: _Sorted) -> None:
        """Bring the rolling figures up to date."""
        for code, series in enumerate(self.plan.series):
            if series not in self.plan.statistics:
                continue
            at = (samples.signal == code) & np.isfinite(samples.value)
            rows, time_ns, value = samples.row[at], samples.time_ns[at], samples.value[at]
            statistics.add(twins.devices[str(series)], rows, time_ns, value)
            if series == self.plan.statistics[0]:
                statistics.add_curve(twins.devices["curve"], rows, time_ns, value)

    def _stepped(
        self, twins: Twins, spoken: Spoken, samples: _Sorted, now_ns: int
    ) -> Iterator[Alert]:
        """Run one rule over the samples of its signals: those in time, and those behind it."""
        codes = [self.plan.series.index(series) for series in spoken.signals.values()]
        at = np.flatnonzero(np.isin(samples.signal, codes))
        if not len(at):
            return
        names = np.array(list(spoken.signals))
        signal = names[np.argsort(codes)[np.searchsorted(np.sort(codes), samples.signal[at])]]
        newest = _times(twins.devices, spoken, samples.row[at], signal)
        group = samples.row[at] * len(self.plan.series) + samples.signal[at]
        passed = overtaken(group, samples.stored_ns[at], samples.time_ns[at])
        ahead = (samples.time_ns[at] > newest) & ~passed
        behind = (samples.time_ns[at] < newest) | passed
        yield from self._run(twins, spoken, twins.devices, samples, at[ahead], signal[ahead],
                             now_ns)  # fmt: skip
        if behind.any():
            at, signal, group = at[behind], signal[behind], group[behind]
            number = replays(group, samples.stored_ns[at], samples.time_ns[at])
            for each in range(number.max() + 1):
                part, kind = at[number == each], signal[number == each]
                _begin_again(twins.late, spoken, samples, part, kind)
                yield from self._run(twins, spoken, twins.late, samples, part, kind, now_ns)

    def _run(
        self,
        twins: Twins,
        spoken: Spoken,
        table: Table,
        samples: _Sorted,
        at: NDArray[np.intp],
        signal: NDArray[np.str_],
        now_ns: int,
    ) -> Iterator[Alert]:
        rows = table.find(samples.key[at])
        state, times = table[of_rule(spoken.rule)], table[times_of(spoken.rule)]
        heads = twins.devices["heads"]
        for places in rounds(rows):
            row, here = rows[places], at[places]
            sample = Samples(
                signal[places],
                samples.time_ns[here],
                samples.value[here],
                {name: heads[str(h)][samples.row[here]] for name, h in spoken.heads.items()},
            )
            fields = state[row]
            late = samples.late(here, self.plan.late_after_ns) | (table is twins.late)
            for finding in spoken.rule.step(fields, sample):
                yield from self._alerts(twins, spoken, finding, samples.key[here], late, now_ns)
            state[row] = fields
            for name in spoken.signals:
                mine = sample.signal == name
                times[name][row[mine]] = sample.time_ns[mine]

    def _alerts(
        self,
        twins: Twins,
        spoken: Spoken,
        finding: Finding,
        keys: NDArray[np.uint64],
        late: NDArray[np.bool_] | None,
        now_ns: int,
    ) -> Iterator[Alert]:
        """Put a finding in words."""
        rule, series = spoken.rule, spoken.series
        for at in np.flatnonzero(finding.where).tolist():
            limit = finding.limit[at] if isinstance(finding.limit, np.ndarray) else finding.limit
            said = AlertDraft(
                twins.names[int(keys[at])],
                finding.kind,
                int(finding.time_ns[at]),
                float(finding.value[at]),
                float(limit),
                finding.note,
            )
            fresh = now_ns - said.time_ns <= self.plan.late_after_ns
            command, params = (rule.command(said) if fresh else None) or ("", {})
            yield Alert(
                said.device,
                rule.name,
                said.kind,
                rule.severity,
                said.time_ns,
                rule.sentence(said, series),
                late is not None and bool(late[at]),
                *(series or ("", "", "")),
                value=None if np.isnan(said.value) else said.value,
                limit=said.limit,
                unit=rule.unit,
                command=command,
                params=params,
            )


class _Sorted:
    """The samples of a batch that count, by device and time."""

    def __init__(
        self, batch: Batch, rows: NDArray[np.intp], fresh: NDArray[np.bool_], twins: Twins
    ) -> None:
        samples = batch.samples[fresh[batch.samples["message"]]]
        untimely = samples["signal"] == UNTIMELY
        np.add.at(twins.devices["device"]["untimely"], rows[samples["message"][untimely]], 1)
        samples = samples[~untimely]
        row = rows[samples["message"]]
        order = np.lexsort((samples["signal"], samples["time_ns"], row))
        samples, row = samples[order], row[order]
        # Of two readings of one time the first counts.
        once = firsts(row)
        for name in ("time_ns", "signal"):
            once |= firsts(samples[name])
        samples, self.row = samples[once], row[once]
        self.signal, self.time_ns = samples["signal"], samples["time_ns"]
        self.value = samples["value"]
        self.stored_ns = batch.messages["stored_ns"][samples["message"]]
        self.key = batch.messages["device"][samples["message"]]

    def late(self, at: NDArray[np.intp], after_ns: int) -> NDArray[np.bool_]:
        """Say which were old when the hub stored them."""
        return np.asarray(self.stored_ns[at] - self.time_ns[at] > after_ns)


def _begin_again(
    late: Table, spoken: Spoken, samples: _Sorted, at: NDArray[np.intp], signal: NDArray[np.str_]
) -> None:
    """Have the second state begin anew for devices whose replay does."""
    rows = late.rows(samples.key[at])
    again = samples.time_ns[at] < _times(late, spoken, rows, signal)
    for section in (of_rule(spoken.rule), times_of(spoken.rule)):
        late[section][rows[again]] = 0
    late["device"]["stored_ns"][rows] = samples.stored_ns[at]


def _times(
    table: Table, spoken: Spoken, rows: NDArray[np.intp], signal: NDArray[np.str_]
) -> NDArray[np.int64]:
    """Return when the newest sample of each one's signal was, 0 for never."""
    times = table[times_of(spoken.rule)]
    found = np.zeros(len(rows), np.int64)
    for name in spoken.signals:
        found[signal == name] = times[name][rows[signal == name]]
    return found
