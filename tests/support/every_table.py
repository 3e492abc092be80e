"""Tables of every kind with rows in each, written by the code that writes them, without Spark."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_codec import Opaque, Point, encode_frame, encode_point
from backhaul_codec.points import JSON
from backhaul_codec.wire.envelope import NO_LINK, chain
from backhaul_runtime.clock import SYSTEM_CLOCK
from backhaul_spark.fleet.job import FleetJob
from backhaul_spark.fleet.settings import FleetSettings
from backhaul_spark.ingest.batch import Ingest
from backhaul_spark.jobs.erase import TableErasure
from backhaul_spark.nats.messages import gap_batch, message_batch
from backhaul_spark.nats.offsets import GAP_RETENTION, Span
from backhaul_spark.places.settings import PlacesSettings
from backhaul_spark.rules.alert import alert_table
from backhaul_spark.sink.alert_tables import AlertTables
from backhaul_spark.tables.schemas import SNAPSHOTS
from tests.support.fleet_rollups import DAY, SimulatedFleet
from tests.support.places_world import PlacesWorld, drive, stand
from tests.support.spark_fleet import HOUR_NS, Fleet
from tests.support.spark_frames import T0_NS, stored, task
from tests.support.twin_batches import Bucket

if TYPE_CHECKING:
    from pathlib import Path

RECEIPT = {"lane": "bulk", "epoch": 1, "lo": 2, "hi": 3, "reason": "evicted: disk full"}
ENDED = {"old": 1, "new": 2, "lanes": {"bulk": 9}, "why": "the ledger went back"}


def write_every_table(root: Path) -> None:
    """Write them all below a root."""
    _said_by_vehicles(str(root))
    fleet = Fleet(root, now_ns=T0_NS + 5 * HOUR_NS)
    fleet.mark(1, bulk=0, device="VID-003")
    for value in (1.0, 2.0, "a text"):  # the second time what is there already is superseded
        fleet.send((0, value), (7, 7), device="VID-002")
        fleet.mark(1, bulk=3, device="VID-002")
        fleet.rollup()
        fleet.report_hours()
    SimulatedFleet(60, 3, stuck=(1,)).write(str(root), DAY)
    SimulatedFleet(2, 3).write(str(root), DAY + timedelta(days=1))  # too few to be compared
    for day in (DAY, DAY + timedelta(days=1)):
        FleetJob(str(root), SYSTEM_CLOCK, FleetSettings()).run(day)
    _said_by_the_twin_job(str(root))
    _made_of_positions(root)
    TableErasure(str(root), SYSTEM_CLOCK).run(["VID-999"])


def _made_of_positions(root: Path) -> None:
    """Twice, the second time with other limits: all that was there is superseded."""
    world = PlacesWorld(root)
    for from_s, settings in ((0, PlacesSettings()), (20_000, PlacesSettings(stop_s=240.0))):
        world.settings = settings
        way = [*stand(0, 600, 0), *drive(600, 1200, 0, 3000), *stand(1200, 1800, 3000)]
        world.send((each._replace(s=each.s + from_s) for each in way), device="VID-004")
        world.run()


def _said_by_vehicles(root: str) -> None:
    words = [("receipt", RECEIPT), ("epoch", ENDED)]
    parts = [gap_batch(Span("UP_00", 1, 7, GAP_RETENTION)), message_batch("UP_00", stored([b"x"]))]
    for seq, (kind, said) in enumerate(words, 1):
        point = Point("agent", kind, T0_NS, Opaque(JSON, json.dumps(said).encode()))
        body = encode_point(point, epoch=2, seq=seq)
        parts.append(message_batch("UP_00", stored([body], leaf=f"e.{kind}", first_seq=10 + seq)))
    again = encode_frame([Point("gps", "mode", T0_NS, "3d")], epoch=2, seq=9, said_again=True)
    parts.append(message_batch("UP_00", stored([again], leaf="p.gps", first_seq=20)))
    parts.append(
        message_batch(
            "UP_00", stored(_two_machines(), leaf="f.gps", first_seq=30, device="VID-003")
        )
    )
    ingest = Ingest(root, SYSTEM_CLOCK)
    reports = [task(root, ingest.tables.next_ingest, part) for part in parts]
    ingest.commit("words", 0, reports)


def _two_machines() -> list[bytes]:
    """Return what two machines wrote into one epoch: a seq with two contents."""
    frames = [encode_frame([Point("gps", "mode", T0_NS, said)], epoch=3, seq=1) for said in "ab"]
    return [chain(body, epoch=3, seq=1, link=NO_LINK) for body in frames]


def _said_by_the_twin_job(root: str) -> None:
    bucket = Bucket()
    bucket.say("VID-001", 10, *(("battery.temp", at, 70.0) for at in (1, 2, 3)))
    alerts = alert_table(bucket.run(10))
    tables = AlertTables(root, SYSTEM_CLOCK)
    tables.add_alerts(0, alerts)
    tables.put_twins(0, pa.Table.from_pylist(bucket.snapshot(), SNAPSHOTS))
