"""Spark writes the history from a hub of three servers, one of which dies in between."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.integration.clusters import STREAM, Cluster, cluster
from tests.support.rig.parts import program, run_to_end

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]
WITH_JAVA = Path(__file__).parents[2] / "tools" / "with-java"
__all__ = ["cluster"]


async def test_the_history_is_whole_though_the_leader_dies(
    cluster: Cluster, tmp_path: Path
) -> None:
    spark = [str(WITH_JAVA), program("backhaul-spark"), "ingest", "--once"]
    ingest = [*spark, "--hub-dir", str(cluster.hub.directory), "--table-root", str(tmp_path / "t")]
    async with cluster.load():
        await cluster.more()
    await cluster.arrives()
    await run_to_end(ingest)
    async with cluster.load():
        await cluster.hub.servers[await cluster.hub.leader(STREAM)].stop(signal.SIGKILL)
        await cluster.more()
    await cluster.arrives()
    await run_to_end(ingest)

    rows = DeltaTable(tmp_path / "t" / "points").to_pandas()
    for device, count in cluster.kept.items():
        times_s = rows.loc[(rows["device"] == device) & (rows["node"] == "battery"), "time_ns"]
        assert sorted(times_s // 10**9) == list(range(1, count + 1))
