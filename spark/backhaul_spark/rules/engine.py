"""Run rules over a bucket's batches. Pure: arrays in, alerts out; no Spark, no clock.

The same engine runs in the stream (actor.py) and over the table (recompute.py).

Samples newer than what a rule had of that signal go on where it was. Older ones, a backlog that comes
after something newer, go to a second state of their own, kept only while it lasts: a rule sees event
time run forward in both. What the second state finds is late, whatever the clock says. A device's messages
are taken in the order in which the hub stored them, with the config points among them, and a message's
samples by their time; so nothing that is found depends on where batches end.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from backhaul_spark.arrays import Flags, Floats, Ints
from backhaul_spark.decode.sample_batch import ALIVE, AWAY, UNTIMELY, Batch
from backhaul_spark.rules import statistics
from backhaul_spark.rules.alert import Alert
from backhaul_spark.rules.plan import Plan
from backhaul_spark.rules.repeats import first_times
from backhaul_spark.rules.rounds import firsts, newest_before, rounds
from backhaul_spark.rules.rule import SECOND_NS, AlertDraft, Finding, Rule, Samples, Spoken
from backhaul_spark.rules.table import Table
from backhaul_spark.rules.twins import Twins, of_rule, stored_of, times_of

# A replay that stood still for so long begins anew when it goes on.
REPLAY_NS = 3600 * SECOND_NS


class Engine:
    """All rules of a plan."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self._hearing = [s for s in plan.rules if type(s.rule).heard is not Rule.heard]
        self._ticking = [s for s in plan.rules if type(s.rule).tick is not Rule.tick]
        self._stepping = [s for s in plan.rules if type(s.rule).step is not Rule.step]

    def take(
        self, twins: Twins, batch: Batch, now_ns: int, until_ns: int | None = None
    ) -> tuple[list[Alert], NDArray[np.intp]]:
        """Take in a batch of one bucket.

        Args:
            twins: the bucket's state; changed.
            batch: from any number of messages.
            now_ns: when the batch runs. An alert older than late_after_s gets no command.
            until_ns: up to when everything that was stored has been taken in with this batch, `now_ns` by
                default. A config point that was stored later waits, for the samples before it.

        Returns:
            The alerts, each id once, and the rows of `twins.devices` that the batch spoke of.
        """
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
        samples.judge_by(twins, batch, rows, now_ns if until_ns is None else until_ns)
        self._count(twins, samples)
        for spoken in self._stepping:
            alerts += self._stepped(twins, spoken, samples, now_ns)
        return _once(alerts), np.unique(rows[living])

    def tick(
        self, twins: Twins, now_ns: int, until_ns: int
    ) -> tuple[list[Alert], NDArray[np.intp]]:
        """Look at every device. `until_ns`: all that was stored up to then has been taken in."""
        twins.forget(until_ns - int(self.plan.forget_after_s * SECOND_NS))
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
        order = np.lexsort((_places(batch.messages), rows))
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
            rows, time_ns, value = _by_time(samples.row[at], samples.time_ns[at], samples.value[at])
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
        newest = newest_before(group, samples.time_ns[at], newest)
        ahead, behind = samples.time_ns[at] > newest, samples.time_ns[at] < newest
        yield from self._run(twins, spoken, twins.devices, samples, at[ahead], signal[ahead],
                             now_ns)  # fmt: skip
        if behind.any():
            twins.late.rows(samples.key[at[behind]])
            yield from self._run(twins, spoken, twins.late, samples, at[behind], signal[behind],
                                 now_ns)  # fmt: skip

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
        for places in rounds(rows):
            if table is twins.late:
                places = places[_goes_on(table, spoken, samples, at[places], signal[places])]
            row, here = rows[places], at[places]
            sample = Samples(
                signal[places],
                samples.time_ns[here],
                samples.value[here],
                {name: samples.heads[str(head)][here] for name, head in spoken.heads.items()},
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
        late: Flags | None,
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
    """The samples of a batch that count, by device, in the order in which it takes them.

    `heads`: by series, the value of the device's config point at each sample, NaN for none.
    """

    def __init__(self, batch: Batch, rows: NDArray[np.intp], fresh: Flags, twins: Twins) -> None:
        samples = batch.samples[fresh[batch.samples["message"]]]
        untimely = samples["signal"] == UNTIMELY
        np.add.at(twins.devices["device"]["untimely"], rows[samples["message"][untimely]], 1)
        samples = samples[~untimely]
        row, place = rows[samples["message"]], _places(batch.messages)[samples["message"]]
        order = np.lexsort((samples["signal"], samples["time_ns"], place, row))
        samples, self.row = samples[order], row[order]
        self.signal, self.time_ns = samples["signal"], samples["time_ns"]
        self.value = samples["value"]
        self.stored_ns = batch.messages["stored_ns"][samples["message"]]
        self.key = batch.messages["device"][samples["message"]]
        self.heads: dict[str, Floats] = {}

    def judge_by(self, twins: Twins, batch: Batch, rows: NDArray[np.intp], until_ns: int) -> None:
        """Set `heads`, and merge the config points of the batch, each from its own place on."""
        now = twins.devices["heads"]
        self.heads = {name: now[name][self.row] for name in now.dtype.names or ()}
        newest = np.zeros(len(twins.devices), np.int64)
        np.maximum.at(newest, rows, batch.messages["stored_ns"])
        for word in twins.due(batch.heads, until_ns, newest):
            row = twins.hear(word)
            if row is None:
                continue
            mine = slice(*np.searchsorted(self.row, [row, row + 1]))
            stored_ns, time_ns = word.since
            after = (self.stored_ns[mine] > stored_ns) | (
                (self.stored_ns[mine] == stored_ns) & (self.time_ns[mine] >= time_ns)
            )
            series = twins.series_of(word)
            self.heads[series][mine][after] = now[series][row]

    def late(self, at: NDArray[np.intp], after_ns: int) -> Flags:
        """Say which were old when the hub stored them."""
        return np.asarray(self.stored_ns[at] - self.time_ns[at] > after_ns)


def _places(messages: NDArray[np.void]) -> NDArray[np.intp]:
    """Return each message's place in the order in which the hub stored them; a lane's own by number."""
    order = np.lexsort((messages["seq"], messages["lane"], messages["stored_ns"]))
    places = np.empty(len(order), np.intp)
    places[order] = np.arange(len(order))
    return places


def _by_time(
    rows: NDArray[np.intp], time_ns: Ints, value: Floats
) -> tuple[NDArray[np.intp], Ints, Floats]:
    """Return samples of one signal by device and time; of two of one time the first."""
    order = np.lexsort((time_ns, rows))
    rows, time_ns, value = rows[order], time_ns[order], value[order]
    once = firsts(rows) | firsts(time_ns)
    return rows[once], time_ns[once], value[once]


def _once(alerts: list[Alert]) -> list[Alert]:
    """Return of alerts with one id the first, as the table of alerts keeps it."""
    found: dict[str, Alert] = {}
    for alert in alerts:
        found.setdefault(alert.id, alert)
    return list(found.values())


def _goes_on(
    late: Table, spoken: Spoken, samples: _Sorted, at: NDArray[np.intp], signal: NDArray[np.str_]
) -> Flags:
    """Say which samples, one a device, its replay did not have yet; begin a replay anew that went back."""
    rows = late.find(samples.key[at])
    last_ns = late[stored_of(spoken.rule)]["ns"]
    newest = _times(late, spoken, rows, signal)
    stood_still = (last_ns[rows] > 0) & (samples.stored_ns[at] - last_ns[rows] > REPLAY_NS)
    again = (samples.time_ns[at] < newest) | stood_still
    for section in (of_rule(spoken.rule), times_of(spoken.rule)):
        late[section][rows[again]] = 0
    last_ns[rows] = samples.stored_ns[at]
    late["device"]["stored_ns"][rows] = samples.stored_ns[at]
    return np.asarray(again | (samples.time_ns[at] > newest))


def _times(table: Table, spoken: Spoken, rows: NDArray[np.intp], signal: NDArray[np.str_]) -> Ints:
    """Return when the newest sample of each one's signal was, 0 for never."""
    times = table[times_of(spoken.rule)]
    found = np.zeros(len(rows), np.int64)
    for name in spoken.signals:
        found[signal == name] = times[name][rows[signal == name]]
    return found
