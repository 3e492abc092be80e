"""Spark writes the history from a hub, and goes on from the one that it has moved to."""

from __future__ import annotations

from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.integration.migration import Load, another_hub
from tests.support.rig.parts import program, run_to_end

from .conftest import World, lane

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(300)]
WITH_JAVA = Path(__file__).parents[2] / "tools" / "with-java"


async def ingest(directory: Path, tables: Path) -> None:
    """Take in what a hub holds, with the checkpoint of the run before."""
    spark = [str(WITH_JAVA), program("backhaul-spark"), "ingest", "--once"]
    await run_to_end([*spark, "--hub-dir", str(directory), "--table-root", str(tables)])


async def test_the_history_has_each_reading_once(world: World, tmp_path: Path) -> None:
    rig, link = await world.vehicle()
    load = Load(rig)
    async with another_hub(world) as move:
        async with load.running():
            await load.more()
        await world.until(lambda report: lane(report).get("watermark") == load.kept // 250)
        await ingest(move.old.directory, tmp_path / "t")
        async with load.running():
            await load.more()
            await move.run()
            await move.follow(link)
            await load.more()
        await world.until(lambda report: lane(report).get("watermark") == load.kept // 250)
        await ingest(move.new.directory, tmp_path / "t")

    rows = DeltaTable(tmp_path / "t" / "points").to_pandas()
    times_s = rows.loc[rows["node"] == "battery", "time_ns"] // 10**9
    assert sorted(times_s) == list(range(1, load.kept + 1))
