"""`backhaul-hub simulate`: Write into a test hub as the sources of a whole fleet would."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

from backhaul_hub.cli._ask import hub_client
from backhaul_hub.cli._options import directory_option
from backhaul_hub.config import load
from backhaul_hub.errors import ConfigError
from backhaul_hub.nats.connection import connected
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.setup.hub_directory import HubLayout
from backhaul_hub.simulated.faults import KINDS, parse_faults
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles
from backhaul_hub.simulated.load import Run, Store
from backhaul_hub.simulated.target import (
    INBOX,
    make_streams,
    make_test_hub,
    require_test_hub,
    simulator_login,
)
from backhaul_runtime.clock import SystemClock

_CLOCK = SystemClock()
_RATE = re.compile(r"(\d+(?:\.\d+)?)/(s|min|h)")
_PER_MIN = {"s": 60.0, "min": 1.0, "h": 1 / 60}
_BACKLOG = re.compile(r"(\d{1,7})x(\d{1,6})([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_SAY_S = 5.0
_FAULTS = "\n".join(f"{kind:8}{about}" for kind, about in KINDS.items())


@click.command(epilog=f"\b\nFaults:\n{_FAULTS}")
@directory_option
@click.option(
    "--make-hub",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Only make a test hub in DIR. No other hub takes what is simulated.",
)
@click.option("--port", default=4222, show_default=True, help="With --make-hub: port for clients.")
@click.option("--leaf-port", default=7422, show_default=True, help="With --make-hub: for leafs.")
@click.option(
    "--shards",
    type=click.IntRange(1, 64),
    default=4,
    show_default=True,
    help="With --make-hub: UP streams.",
)
@click.option(
    "--up-gib",
    type=click.IntRange(1),
    default=4,
    show_default=True,
    help="With --make-hub: of each.",
)
@click.option(
    "--devices",
    type=click.IntRange(1, 1_000_000),
    default=100,
    show_default=True,
    help="How many vehicles.",
)
@click.option(
    "--rate", default="6/min", show_default=True, help="Messages of each: N/s, N/min, N/h."
)
@click.option("--seconds", type=click.IntRange(0), default=60, show_default=True, help="How long.")
@click.option("--seed", default=1, show_default=True, help="The same seed, the same fleet.")
@click.option(
    "--start",
    type=click.DateTime(["%Y-%m-%dT%H:%M:%SZ"]),
    help="With --seconds 0: as if now were this time.  [default: now]",
)
@click.option(
    "--faults", default="", metavar="KIND:VEHICLES,...", help="Plant these, listed below."
)
@click.option(
    "--backlog",
    default="0x0s",
    metavar="VEHICLESxTIME",
    help="So many vehicles had no link for that long (s, m, h, d): 50x2d.",
)
@click.option(
    "--backlog-at", type=float, help="Seconds until they have one.  [default: half of --seconds]"
)
@click.option(
    "--backlog-rate", default=5000.0, show_default=True, help="Messages a second of all of them."
)
@click.option(
    "--per-frame",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    help="Readings of each sensor in a message.",
)
@click.option(
    "--bundles/--frames",
    default=False,
    show_default=True,
    help="Telemetry in bundles, or as agents send it so far: a frame for each node.",
)
@click.option(
    "--truth",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write what is wrong with which vehicle here, JSON.",
)
@click.option("--json", "as_json", is_flag=True, help="Print what was sent as JSON.")
def simulate(
    directory: Path,
    make_hub: Path | None,
    port: int,
    leaf_port: int,
    shards: int,
    up_gib: int,
    devices: int,
    rate: str,
    seconds: int,
    seed: int,
    start: datetime | None,
    faults: str,
    backlog: str,
    backlog_at: float | None,
    backlog_rate: float,
    per_frame: int,
    bundles: bool,
    truth: Path | None,
    as_json: bool,
) -> None:
    """Write into a test hub the messages that the sources of a whole fleet would.

    Frames, seqs, marks, late backlogs, faults: all follow from the seed. Only a hub that --make-hub
    has made takes them; its nats-server runs, its control plane does not.
    """
    if make_hub is not None:
        layout = _layout(port, leaf_port, shards, up_gib)
        make_test_hub(make_hub, layout, _CLOCK)
        click.echo(
            f"{make_hub} is a test hub. Start its server:  nats-server -c {make_hub}/hub.conf"
        )
        return
    require_test_hub(directory)
    if start is not None and seconds:
        raise click.UsageError("--start goes with --seconds 0: what is sent live is of now")
    late_devices, late_s = _backlog(backlog, devices)
    start_ns = _CLOCK.now_ns()
    if start is not None:
        start_ns = int(start.replace(tzinfo=UTC).timestamp()) * 1_000_000_000
    plan = FleetPlan(
        devices=devices,
        rate_min=_rate_min(rate),
        passes=per_frame,
        seed=seed,
        start_ns=start_ns,
        seconds=seconds,
        faults=parse_faults(faults),
        late_devices=late_devices,
        late_s=late_s,
        bundles=bundles,
    )
    fleet = SimulatedVehicles(plan)
    if truth is not None:
        truth.write_text(json.dumps(fleet.truth(), indent=2) + "\n")
    at_s = seconds / 2 if backlog_at is None else backlog_at
    done = asyncio.run(_run(directory, fleet, at_s, backlog_rate))
    click.echo(json.dumps(done) if as_json else _told(done))


async def _run(
    directory: Path, fleet: SimulatedVehicles, backlog_at_s: float, backlog_rate: float
) -> dict[str, Any]:
    config = load(directory)
    login = simulator_login(directory, config)
    there = connected(config.nats.url, login, inbox_prefix=INBOX)
    async with hub_client(directory) as control, there as client:
        api = JetStreamApi(control)
        await make_streams(api, config)
        store = await Store.open(client, api, config.fleet.shards)
        run = Run(fleet, store.send, _CLOCK)
        began_s = _CLOCK.monotonic_s()
        saying = asyncio.create_task(_say(store, run))
        try:
            await run.introduce()
            introduced_s = _CLOCK.monotonic_s()
            await run.live(backlog_at_s, backlog_rate)
            live_s = _CLOCK.monotonic_s() - introduced_s
            await store.flush(api)
        finally:
            saying.cancel()
    return {
        "messages": store.messages,
        "bytes": store.bytes,
        "introduction_s": round(introduced_s - began_s, 3),
        "live_s": round(live_s, 3),
        "behind_s": round(run.behind_s, 3),
        "behind_s_max": round(run.behind_s_max, 3),
    }


async def _say(store: Store, run: Run) -> None:
    """Say on stderr how far it is, while it takes long."""
    before = 0
    while True:
        await asyncio.sleep(_SAY_S)
        sent, before = store.messages - before, store.messages
        print(
            f"{store.messages:,} messages, {sent / _SAY_S:,.0f} a second,"
            f" {run.behind_s:.1f} s behind",
            file=sys.stderr,
        )


def _told(done: dict[str, Any]) -> str:
    return (
        f"{done['messages']:,} messages, {done['bytes']:,} bytes, all stored; introductions took"
        f" {done['introduction_s']:.1f} s, the rest {done['live_s']:.1f} s,"
        f" at most {done['behind_s_max']:.1f} s late"
    )


def _layout(port: int, leaf_port: int, shards: int, up_gib: int) -> HubLayout:
    host = "127.0.0.1"
    return HubLayout(
        client_host=host,
        host=host,
        client_port=port,
        leaf_port=leaf_port,
        leaf_url=f"nats-leaf://{host}:{leaf_port}",
        shards=shards,
        watermark_interval_s=5.0,
        up_gib=up_gib,
        env="test",
        # 10,000 messages a second would be as many syncs; nothing here is a promise.
        sync_interval="2m",
    )


def _rate_min(text: str) -> float:
    match = _RATE.fullmatch(text)
    if match is None or float(match[1]) == 0:
        raise ConfigError(f"{text!r} is no rate", hint="6/min, 0.5/s or 12/h")
    return float(match[1]) * _PER_MIN[match[2]]


def _backlog(text: str, devices: int) -> tuple[int, int]:
    match = _BACKLOG.fullmatch(text)
    if match is None or int(match[1]) > devices:
        raise ConfigError(
            f"{text!r} is no backlog of {devices} vehicles", hint="VEHICLESxTIME, as in 50x2d"
        )
    return int(match[1]), int(match[2]) * _SECONDS[match[3]]
