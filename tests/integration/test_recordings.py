"""Recordings of real vehicles, through agent, hub and Spark, with the link cut for 30 s."""

from __future__ import annotations

import asyncio
import json
import time
import tomllib
from typing import TYPE_CHECKING

import pandas as pd  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from deltalake import DeltaTable

from tests.integration.data import DATA, ROOT
from tests.support.rig.parts import DeviceRig, program, run_to_end

from .conftest import World, lane

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.rig.relay import Relay

pytestmark = [pytest.mark.nats, pytest.mark.spark, pytest.mark.timeout(600)]

RECORDINGS = {
    "TWIZY": ("twizy_ev.parquet", "twizy.toml"),
    "KIT": ("kit_obd_readings.parquet", "kit.toml"),
    "EBIKE": ("ebike_trips.parquet", "ebike.toml"),
    "PX4": ("px4_flight.parquet", "px4.toml"),
}
CUT_S = 30.0
UNTIMED = 0  # stands for the time of a row that has none: the agent's stamp
COLUMNS = ["device", "node", "type", "key", "time_ns", "value"]


def expected_points(device: str) -> pd.DataFrame:
    """Work out what a recording holds, from the file and its mapping, without our own reader."""
    file, mapping_file = RECORDINGS[device]
    mapping = tomllib.loads((ROOT / "agent" / "mappings" / mapping_file).read_text())
    rows = pq.read_table(DATA / file).to_pandas()
    # Beyond 2**53 a float column (there are nulls in it) would have rounded the time.
    times = pq.read_table(DATA / file, columns=["t_ns"]).column("t_ns").fill_null(UNTIMED)
    times = times.to_numpy()
    if "long" in mapping:
        names = {name: mapping["long"].get(name, "") for name in ("node", "type", "key")}
        parts = [
            pd.DataFrame(
                {name: filled(template, rows) for name, template in names.items()}
                | {"time_ns": times, "value": exact(rows["value"])}
            )
        ]
    else:
        parts = [
            pd.DataFrame(
                {name: series.get(name, "") for name in ("node", "type", "key")}
                | {"time_ns": times, "value": exact(rows[series["column"]])}
            )[rows[series["column"]].notna().to_numpy()]
            for series in mapping["series"]
        ]
    return pd.concat(parts).assign(device=device)[COLUMNS]


def filled(template: str, rows: pd.DataFrame) -> object:
    """Fill a template that is empty, a plain word, or one column's name in braces."""
    if template.startswith("{"):
        return rows[template.strip("{}")].astype(str).to_numpy()
    return template


def exact(values: pd.Series[object]) -> object:
    """Return values as texts that are equal only where type and bits are."""
    if pd.api.types.is_float_dtype(values):
        return [f"f{bits:016x}" for bits in values.to_numpy("float64").view("uint64")]
    if pd.api.types.is_integer_dtype(values):
        return [f"i{value}" for value in values]
    return [f"t{value}" for value in values]


def history_points(table: Path) -> pd.DataFrame:
    """Read the points table as any program would."""
    rows = DeltaTable(table).to_pandas()
    assert set(rows["dtype"]) <= {1, 2, 4}
    value = pd.Series("", index=rows.index)
    for dtype, column in ((1, "value_f64"), (2, "value_i64"), (4, "value_text")):
        chosen = rows["dtype"] == dtype
        values = rows.loc[chosen, column]
        value[chosen] = exact(values.astype("int64") if dtype == 2 else values)
    return rows.assign(value=value)[COLUMNS]


def without_stamps(found: pd.DataFrame, began_ns: int) -> pd.DataFrame:
    """Check that what the agent stamped was stamped here and now, and take those stamps away."""
    stamped = found["time_ns"] >= began_ns
    assert set(found.loc[stamped, "device"]) == {"TWIZY"}
    assert found.loc[stamped, "time_ns"].max() <= time.time_ns()
    return found.assign(time_ns=found["time_ns"].where(~stamped, UNTIMED))


async def replay(rig: DeviceRig) -> str:
    file, mapping = RECORDINGS[rig.device]
    return await run_to_end(
        [
            program("backhaul-agent"),
            "replay",
            str(DATA / file),
            "--map",
            str(ROOT / "agent" / "mappings" / mapping),
            "--speed",
            "max",
            "--url",
            rig.url,
        ]
    )


@pytest.mark.skipif(not DATA.exists(), reason=f"no recordings in {DATA}")
async def test_every_point_of_four_recordings_is_in_the_history_once(world: World) -> None:
    # Every recording is older, and vehicles' clocks are not exact.
    began_ns = time.time_ns() - 60 * 10**9
    vehicles: dict[str, tuple[DeviceRig, Relay]] = {}
    for device in RECORDINGS:
        vehicles[device] = await world.vehicle(device)
    async with asyncio.TaskGroup() as tasks:
        replays = {device: tasks.create_task(replay(rig)) for device, (rig, _) in vehicles.items()}
        # Cut while the replays run, as soon as something has got through.
        await world.until(lambda report: bool(lane(report, "KIT").get("messages")))
        for _, relay in vehicles.values():
            await relay.cut()
        await asyncio.sleep(CUT_S)
        for _, relay in vehicles.values():
            await relay.heal()
    expected = pd.concat([expected_points(device) for device in RECORDINGS])
    for device, output in ((device, task.result()) for device, task in replays.items()):
        count = int((expected["device"] == device).sum())
        assert f"{count} points: {count} kept, 0 refused, 0 not known" in output
    assert "170 rows without a valid time" in replays["TWIZY"].result()

    for device, (rig, _) in vehicles.items():
        await all_at_the_hub(world, rig, device)
    tables = world.directory / "tables"
    spark = [str(ROOT / "tools" / "with-java"), program("backhaul-spark")]
    ingest = ["ingest", "--hub-dir", str(world.hub.directory), "--table-root", str(tables)]
    await run_to_end([*spark, *ingest, "--once"])

    found = without_stamps(history_points(tables / "points"), began_ns)
    found = found.sort_values(COLUMNS, ignore_index=True)
    wanted = expected.sort_values(COLUMNS, ignore_index=True)
    assert len(found) == len(wanted)
    pd.testing.assert_frame_equal(found, wanted, check_dtype=False)


async def all_at_the_hub(world: World, rig: DeviceRig, device: str) -> None:
    """Wait until the hub holds every message that the vehicle's ledger gave out."""
    local = await world.leaf_client(rig)
    status = json.loads((await local.request("agent.status", b"", timeout=30)).data)
    while status["ledger"]["staged_points"]:
        await asyncio.sleep(0.2)
        status = json.loads((await local.request("agent.status", b"", timeout=30)).data)
    last = status["lanes"]["bulk"]["last_seq"]
    await world.until(
        lambda report: lane(report, device).get("watermark", 0) >= last, deadline_s=120
    )
