"""Take up messages that were set aside because their dictionary was not there. Driver side.

They stand in the table `rejects` with the code `dictionary`. Now and then a batch reads some of them again, beside
its own messages: where the dictionary has come, their points go into the table with that batch, and coverage
decides as of any message, so each is there once however often it is taken up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_runtime.clock import Clock
from backhaul_spark.nats.dictionaries import CODE, DictionaryReader
from backhaul_spark.nats.direct_get import read_range
from backhaul_spark.nats.endpoint import Endpoint
from backhaul_spark.nats.messages import message_batch
from backhaul_spark.tables.part_writer import TaskReport, write_parts
from backhaul_spark.tables.said_again import Note

Place = tuple[str, int]
"""Stream and sequence."""

AT_ONCE = 256
"""Messages that one batch takes up: they pass through the driver."""
WAIT_S_MIN, WAIT_S_MAX = 10.0, 600.0


class Owed:
    """The messages that wait for a dictionary, and when to look again.

    Args:
        places: those of the table `rejects`, settled ones among them: they turn out to be repeats.
    """

    def __init__(self, places: Iterable[Place], endpoint: Endpoint, clock: Clock) -> None:
        self._places = dict.fromkeys(places)
        self._endpoint = endpoint
        self._clock = clock
        self._wait_s = WAIT_S_MIN
        self._due_s = clock.monotonic_s()

    def __len__(self) -> int:
        return len(self._places)

    def take_up(
        self, uri: str, ingest: int, at_us: int, standing: Collection[Note]
    ) -> list[TaskReport]:
        """Return the report on some of the messages, as one more task's; none where it is not time yet.

        Raises:
            HubServerError: the hub's server did not answer.
        """
        if not self._places or self._clock.monotonic_s() < self._due_s:
            return []
        some = list(self._places)[:AT_ONCE]
        batches = self._messages(some)
        dictionaries = DictionaryReader(self._endpoint)
        [row] = write_parts(batches, uri, ingest, at_us, standing, dictionaries)
        facts = row.to_pylist()[0]
        report = TaskReport.from_row(facts["facts"], facts["messages"])
        waiting = set(_owed([report]))
        for place in some:
            del self._places[place]
        self._places.update(dict.fromkeys(place for place in some if place in waiting))
        self._wait(found=len(waiting) < len(some))
        return [report]

    def note(self, reports: Iterable[TaskReport]) -> None:
        """Take in the messages that a batch has set aside."""
        new = [place for place in _owed(reports) if place not in self._places]
        if new:
            self._places.update(dict.fromkeys(new))
            self._wait(found=True)

    def _wait(self, *, found: bool) -> None:
        self._wait_s = WAIT_S_MIN if found else min(WAIT_S_MAX, self._wait_s * 2)
        self._due_s = self._clock.monotonic_s() + self._wait_s

    def _messages(self, places: list[Place]) -> Iterator[pa.RecordBatch]:
        for stream, seq in places:
            # One that is gone has its gap, or was restored under another sequence.
            for part in read_range(self._endpoint, stream, seq, seq):
                yield message_batch(stream, part)


def _owed(reports: Iterable[TaskReport]) -> Iterator[Place]:
    for report in reports:
        for row in report.rejects:
            if row["code"] == CODE:
                yield row["stream"], row["stream_seq"]
