"""Spark's job that writes the history, kept running beside a run, and the table that comes of it."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.chaos.evidence import EXPANDING, reading_of
from tests.support.errors import TrialError
from tests.support.rig.parts import program
from tests.support.rig.spark_jobs import Job, batches_done

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa  # type: ignore[import-untyped]

    from tests.chaos.diary import Reading

    Table = tuple[Counter[Reading], Counter[str]]

TABLES = "history"
_LOOK_S = 0.2
_COLUMNS = ["device", "node", "time_ns", "value_f64", "type"]


class Ingest:
    """The job on a hub, with tables, checkpoint and log in the directory of a run."""

    def __init__(self, hub: Path, directory: Path) -> None:
        root = directory / TABLES
        words = ["ingest", "--every", "1s", "--hub-dir", str(hub), "--table-root", str(root)]
        self.job = Job(
            "history ingest", [program("backhaul-spark"), *words], directory / "ingest.log"
        )
        self._points = root / "points"
        self._checkpoint = root / "_checkpoints" / "ingest"
        self._read: tuple[int, Table] = -1, (Counter(), Counter())

    async def goes_on(self, wait_s: float) -> None:
        """Wait until one more batch is committed, but no longer than so many seconds."""
        before = batches_done(self._checkpoint)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                while batches_done(self._checkpoint) <= before:  # noqa: ASYNC110 - files
                    await asyncio.sleep(_LOOK_S)

    async def stop(self) -> list[str]:
        """End the job as a service manager does; return what was wrong with it, in words."""
        try:
            await self.job.stop()
        except TrialError as error:
            return [str(error)]
        return self.job.unasked

    def table(self) -> Table:
        """Return what the table holds, read with a library that is not ours; read anew if it grew.

        That is its readings, and by device how many rows it has of frames that expand.
        """
        import pyarrow.dataset as ds  # type: ignore[import-untyped]
        from deltalake import DeltaTable
        from deltalake.exceptions import TableNotFoundError

        try:
            table = DeltaTable(self._points)
        except TableNotFoundError:
            return Counter(), Counter()
        if table.version() != self._read[0]:
            expanding = ds.field("node") == EXPANDING
            rows = table.to_pyarrow_dataset()
            readings = _readings(rows.to_table(columns=_COLUMNS, filter=~expanding))
            devices = rows.to_table(columns=["device"], filter=expanding).column("device")
            many = {each["values"]: each["counts"] for each in devices.value_counts().to_pylist()}
            self._read = table.version(), (readings, Counter(many))
        return self._read[1]


def _readings(table: pa.Table) -> Counter[Reading]:
    rows = table.to_pydict()
    return Counter(
        reading_of(*values)
        for *values, type_ in zip(*(rows[column] for column in _COLUMNS), strict=True)
        if type_ == "value"
    )
