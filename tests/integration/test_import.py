"""A fleet's old logs, imported at a real hub and read by Spark: each row once, whatever is done twice."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from deltalake import DeltaTable
from nats.errors import Error as NatsError

from backhaul_codec import decode, peek
from backhaul_codec.recordings.mapping import load
from backhaul_codec.subjects import parse_uplink
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import JetStreamError
from backhaul_hub.imports.book import RegistryBook
from backhaul_hub.imports.files import look
from backhaul_hub.imports.run import Import
from backhaul_hub.lane_records.imported_rows import unfinished
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_runtime.clock import SystemClock
from tests.support.rig.parts import program, run_to_end

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .conftest import World

pytestmark = [pytest.mark.nats, pytest.mark.timeout(600)]

ROOT = Path(__file__).parents[2]
BEGAN_S = 1_617_016_425
MAP = """
[time]
column = "t"
unit = "s"
[[series]]
column = "soc"
node = "battery"
type = "soc"
[[series]]
column = "speed"
node = "drive"
type = "speed"
[device]
column = "vin"
names = {{ WVW = "VID-002" }}
"""
BY_NAME = MAP.replace('column = "vin"\nnames = {{ WVW = "VID-002" }}', 'file = "{{device}}/*.csv"')


class Logs:
    """Logs, and the command that imports them."""

    def __init__(self, world: World, text: str = MAP) -> None:
        self.world = world
        self.logs = world.directory / "logs"
        self.logs.mkdir()
        self.map = world.directory / "map.toml"
        self.map.write_text(text.format())

    @property
    def command(self) -> list[str]:
        hub = ["--dir", str(self.world.hub.directory)]
        return [program("backhaul-hub"), "import", str(self.logs), "--map", str(self.map), *hub]

    def write(self, name: str, rows: Iterable[int], vin: str) -> None:
        """Write rows by number into a file; append where it is there already."""
        path = self.logs / name
        path.parent.mkdir(exist_ok=True, parents=True)
        lines = "".join(f"{BEGAN_S + row},{row}.5,{row * 2},{vin}\n" for row in rows)
        path.write_text((path.read_text() if path.exists() else "t,soc,speed,vin\n") + lines)

    async def run(self, *words: str, status: int = 0) -> tuple[dict[str, Any], str]:
        process = await asyncio.create_subprocess_exec(
            *self.command,
            "--json",
            *words,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, errors = await process.communicate()
        assert process.returncode == status, errors.decode()
        return json.loads(out) if out else {}, errors.decode()

    async def stored(self) -> tuple[int, dict[tuple[str, int, int], list[tuple[str, int, Any]]]]:
        """Return how many messages IMPORT has, and by place the points of each frame."""
        client = await self.world.hub_client()
        api = JetStreamApi(client)
        info = await api.stream_info("IMPORT")
        count = info["state"]["messages"] if info else 0
        found: dict[tuple[str, int, int], list[tuple[str, int, Any]]] = {}
        jetstream = client.jetstream()
        for seq in range(1, count + 1):
            message = await jetstream.get_msg("IMPORT", seq)
            uplink = parse_uplink(message.subject or "")
            header = peek(message.data or b"")
            if uplink.letter == "f":
                points = decode(message.data or b"", node=uplink.node or "").points
                rows = [(point.type, point.time, point.value) for point in points]
                place = (uplink.device, header.epoch, header.seq)
                assert found.setdefault(place, rows) == rows, "one place, one content"
        return count, found


def soc(found: dict[tuple[str, int, int], list[tuple[str, int, Any]]], device: str) -> list[float]:
    return sorted(
        value
        for place, points in found.items()
        for type_, _, value in points
        if place[0] == device and type_ == "soc"
    )


def expected(rows: Iterable[int]) -> list[float]:
    return [row + 0.5 for row in rows]


async def test_devices_that_the_hub_does_not_know_are_refused_with_a_list_or_added(
    world: World,
) -> None:
    it = Logs(world)
    it.write("a.csv", range(10), "VID-001")
    it.write("a.csv", range(10, 20), "WVW")
    _, said = await it.run(status=1)
    assert "does not know VID-001, VID-002: nothing was imported" in said
    assert "--add-unknown" in said
    assert (await it.stored())[0] == 0
    done, _ = await it.run("--add-unknown")
    assert (done["rows"], done["points"], done["devices"]) == (20, 40, 2)
    report = await world.report()
    assert [each["device"] for each in report["devices"]] == ["VID-001", "VID-002"]
    _, found = await it.stored()
    assert soc(found, "VID-001") == expected(range(10))
    assert soc(found, "VID-002") == expected(range(10, 20))


async def test_what_cannot_be_read_is_named_and_the_rest_imported(world: World) -> None:
    it = Logs(world, BY_NAME)
    it.write("VID-001/a.csv", range(100), "")
    it.write("VID-001/wrong.csv", range(-BEGAN_S, 100 - BEGAN_S), "")
    (it.logs / "VID-001" / "torn.parquet").write_bytes(b"PAR1")
    it.write("nobody.csv", range(5), "")
    done, said = await it.run("--add-unknown", status=1)
    assert done["rows"] == 100
    assert sorted(each["file"] for each in done["refused"]) == [
        "VID-001/torn.parquet",
        "VID-001/wrong.csv",
        "nobody.csv",
    ]
    assert "Traceback" not in said
    assert any("year 1970" in each["why"] for each in done["refused"])


async def test_an_import_killed_again_and_again_holds_each_row_once(world: World) -> None:
    it = Logs(world, BY_NAME)
    for device in range(3):
        it.write(f"VID-00{device}/a.csv", range(30_000), "")
    for round_ in range(6):
        before = (await it.stored())[0]
        process = await asyncio.create_subprocess_exec(
            *it.command,
            "--add-unknown",
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.DEVNULL,
        )
        api = JetStreamApi(await world.hub_client())
        async with asyncio.timeout(120):
            while process.returncode is None:
                info = await api.stream_info("IMPORT")
                if info and info["state"]["messages"] > before + 3 + 11 * round_:
                    process.kill()
                    break
                await asyncio.sleep(0)
        await process.wait()
    done, _ = await it.run("--add-unknown")
    assert done["rows"] + done["before"] == 90_000
    _, found = await it.stored()
    for device in range(3):
        assert soc(found, f"VID-00{device}") == expected(range(30_000))
    done, _ = await it.run()
    assert (done["rows"], done["before"]) == (0, 90_000)


async def test_a_changed_recording_is_refused_and_a_second_import_beside_the_first(
    world: World,
) -> None:
    it = Logs(world, BY_NAME)
    it.write("VID-001/a.csv", range(100), "")
    await it.run("--add-unknown")
    path = it.logs / "VID-001" / "a.csv"
    text = path.read_text()
    path.write_text(text.replace("50.5,100", "50.5,7"))
    done, _ = await it.run(status=1)
    assert "was changed, or is another one" in done["refused"][0]["why"]
    path.write_text("\n".join(text.splitlines()[:50]) + "\n")
    done, _ = await it.run(status=1)
    assert "has fewer" in done["refused"][0]["why"]
    path.write_text(text)
    shutil.copy(path, it.logs / "VID-001" / "copy.csv")
    done, _ = await it.run()
    assert (done["rows"], done["before"]) == (0, 200)


async def test_a_file_that_grew_since_an_import_was_killed_in_it_holds_each_row_once(
    world: World,
) -> None:
    it = Logs(world, BY_NAME)
    it.write("VID-001/a.csv", range(5000), "")
    await it.run("--add-unknown")
    it.write("VID-001/a.csv", range(5000, 7000), "")

    class Ending(JetStreamApi):
        """Stores a few messages, and then no more."""

        left = 3

        async def publish(self, *message: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise JetStreamError("import.VID-001.f.battery", 10047, "no room")
            return await super().publish(*message, **options)

    mapping = load(it.map)
    assert mapping.device is not None
    found = look(it.logs, mapping, mapping.device, lambda _: None)
    async with await Registry.open(world.hub.directory / "hub.db") as registry:
        api = Ending(await world.hub_client())
        ended = Import(
            it.logs,
            mapping,
            mapping.device,
            RegistryBook(registry),
            api,
            SystemClock(),
            lambda *_: None,
        )
        with pytest.raises(JetStreamError):
            await ended.run(found)
        assert "5000 of 7000 rows" in await unfinished(registry, time.time_ns() + 300 * 10**9)
    hub = [program("backhaul-hub"), "completeness", "VID-001", "--json"]
    hub += ["--dir", str(world.hub.directory), "--from", "2021-03-29", "--to", "2021-03-30"]
    hours = json.loads(await run_to_end(hub))["hours"]
    assert [each["state"] for each in hours] == ["imported", "waiting", "waiting"]
    it.write("VID-001/a.csv", range(7000, 7100), "")
    done, _ = await it.run()
    assert (done["rows"], done["before"]) == (2100, 5000)
    _, found_points = await it.stored()
    assert soc(found_points, "VID-001") == expected(range(7100))
    hours = json.loads(await run_to_end(hub))["hours"]
    assert [each["state"] for each in hours] == ["imported"] * 3


async def test_a_stream_that_lost_what_was_imported_is_noticed_and_filled_again(
    world: World,
) -> None:
    it = Logs(world, BY_NAME)
    it.write("VID-001/a.csv", range(5000), "")
    await it.run("--add-unknown")
    _, before = await it.stored()
    client = await world.hub_client()
    await JetStreamApi(client).request("STREAM.DELETE.IMPORT")
    _, said = await it.run(status=1)
    assert "lost messages that were imported: import them again, with --again" in said
    status = [program("backhaul-hub"), "status", "--json", "--dir", str(world.hub.directory)]
    async with asyncio.timeout(60):
        while "import-unfinished" not in await run_to_end(status):  # noqa: ASYNC110 - a look each 5 s
            await asyncio.sleep(0.2)
    done, _ = await it.run("--again")
    assert (done["rows"], done["before"]) == (5000, 0)
    assert (await it.stored())[1] == before, "at the same places"
    done, _ = await it.run()
    assert (done["rows"], done["before"]) == (0, 5000)


async def test_no_account_but_the_hubs_own_can_import(world: World) -> None:
    it = Logs(world, BY_NAME)
    it.write("VID-001/a.csv", range(10), "")
    await it.run("--add-unknown")
    count, _ = await it.stored()
    for account in ("FLEET", "UP", "JOBS", "TWIN", "HISTORY", "PEOPLE", "ENROL"):
        async with world.hub.connection_in(account) as client:
            for subject in ("import.VID-001.f.x", "up.VID-001.import.f.x", "importapi.f.x"):
                await client.publish(subject, b"x")
            await client.flush()
    assert (await it.stored())[0] == count
    async with world.hub.connection_in("JOBS") as client:
        for verb in ("STREAM.DELETE.IMPORT", "STREAM.PURGE.IMPORT", "STREAM.UPDATE.IMPORT"):
            with pytest.raises(NatsError):
                await client.request(f"importapi.{verb}", b"{}", timeout=1)
    assert (await it.stored())[0] == count


@pytest.mark.spark
async def test_an_imported_fleet_is_in_the_history_once_and_reported_so(world: World) -> None:
    it = Logs(world)
    for vin in ("VID-001", "WVW"):
        it.write("all.csv", range(9000), vin)
    await it.run("--add-unknown")
    rig, _ = await world.vehicle("VID-003")
    local = await world.leaf_client(rig)
    await local.request("app.battery.soc", b"1.5", timeout=30)
    tables = world.directory / "tables"
    spark = [str(ROOT / "tools" / "with-java"), program("backhaul-spark")]
    root = ["--table-root", str(tables)]
    ingest = [*spark, "ingest", "--hub-dir", str(world.hub.directory), *root, "--once"]
    await run_to_end(ingest)

    # hub.db forgets, as one that was put back from an older copy would: the same blocks come again.
    await world.hub.control.stop()
    with closing(sqlite3.connect(world.hub.directory / "hub.db")) as database, database:
        for table in ("import_source", "import_epoch", "import_hour", "import_stream"):
            database.execute(f"DELETE FROM {table}")
    await world.hub.start_control()
    it.write("all.csv", range(9000, 9100), "WVW")
    done, _ = await it.run()
    assert done["rows"] == 18_100
    await world.until(lambda report: bool(report["devices"]))
    await run_to_end(ingest)

    points = DeltaTable(tables / "points").to_pandas()
    mine = points[(points["lane"] == "import") & (points["type"] == "soc")]
    for device, rows in (("VID-001", 9000), ("VID-002", 9100)):
        values = sorted(mine[mine["device"] == device]["value_f64"])
        whole = rows // 4096 * 4096
        assert values[:whole] == expected(range(whole)), "whole blocks are known again"
        assert sorted(set(values)) == expected(range(rows)), "nothing is missing"
        # What nobody can know: rows at the end, of a file that has grown since all was forgotten.
        assert len(values) == (9000 if device == "VID-001" else 9100 + 9000 - whole)

    said = await run_to_end(
        [*spark, "completeness", *root, "--device", "VID-001", "--json"],
    )
    hours = json.loads(said)["hours"]
    assert {hour["state"] for hour in hours} == {"imported"}
    assert hours[0]["hour"] == "2021-03-29T11:00Z"
    assert len(hours) == 3
    hub = [program("backhaul-hub"), "completeness", "VID-001", "--json"]
    hub += ["--dir", str(world.hub.directory), "--from", "2021-03-29", "--to", "2021-03-30"]
    found = json.loads(await run_to_end(hub))["hours"]
    assert [(each["hour"], each["state"]) for each in found] == [
        (each["hour"], "imported") for each in hours
    ]
