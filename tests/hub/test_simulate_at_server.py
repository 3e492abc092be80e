"""With real servers: `backhaul-hub simulate` against a real server: what it writes, and where it will not."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from backhaul_codec import peek
from backhaul_codec.kinds import BULK
from backhaul_hub.cli._ask import hub_client
from backhaul_hub.config import load
from backhaul_hub.errors import HubError
from backhaul_hub.lane_names import out_stream
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.simulated.fleet import FleetPlan, SimulatedVehicles
from backhaul_hub.simulated.lanes import Sourced
from backhaul_hub.simulated.load import ACKNOWLEDGED_EVERY, Store, source_header
from backhaul_hub.simulated.target import INBOX, make_streams, simulator_login
from backhaul_spark.nats.direct_get import close_connections, list_streams, read_range
from backhaul_spark.nats.endpoint import endpoint_from
from tests.hub.simulate_line import invoke, made
from tests.support.rig import patient
from tests.support.rig.parts import Part, program

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.nats_server import NatsServer

pytestmark = pytest.mark.nats

START_NS = 1_767_225_600 * 10**9  # 2026-01-01T00:00:00Z
MANY = Sourced("SIM-000001", "f.battery", BULK, 1, b"body")


@asynccontextmanager
async def running(directory: Path) -> AsyncIterator[None]:
    server = Part(
        "hub", [program("nats-server"), "-c", str(directory / "hub.conf")], directory / "log"
    )
    await server.start()
    try:
        port = int(load(directory).nats.url.rpartition(":")[2])
        await server.wait_listening(port)
        yield
    finally:
        await server.stop()


def stored(directory: Path) -> dict[tuple[str, bytes], int]:
    """What the streams of UP hold, as Spark's login reads it: how often each subject and body."""
    url = load(directory).nats.url
    endpoint = endpoint_from({"servers": url, "credentials": str(directory / "hub.toml")})
    found: dict[tuple[str, bytes], int] = {}
    try:
        for stream in list_streams(endpoint, ["UP_*"]).values():
            for part in read_range(endpoint, stream.name, 1, stream.last_seq):
                for pair in zip(part.subjects, part.bodies, strict=True):
                    found[pair] = found.get(pair, 0) + 1
    finally:
        close_connections()
    return found


async def test_what_is_simulated_stands_in_up_for_spark_to_read(tmp_path: Path) -> None:
    hub, truth = made(tmp_path / "hub"), tmp_path / "truth.json"
    arguments = ["--dir", str(hub), "--devices", "40", "--seconds", "0", "--backlog", "40x2h"]
    arguments += ["--start", "2026-01-01T00:00:00Z", "--faults", "stuck:1,drain:4", "--seed", "5"]
    async with running(hub):
        result = await asyncio.to_thread(
            invoke, *arguments, "--backlog-rate", "100000", "--truth", str(truth), "--json"
        )
        assert result.exit_code == 0, result.output
        held = await asyncio.to_thread(stored, hub)
    plan = FleetPlan(
        devices=40,
        rate_min=6,
        passes=1,
        seed=5,
        start_ns=START_NS,
        seconds=0,
        faults={"stuck": 1, "drain": 4},
        late_devices=40,
        late_s=7200,
    )
    fleet = SimulatedVehicles(plan)
    sent = list(fleet.backlog(START_NS))
    assert held == {(f"up.{each.device}.{each.leaf_subject}", each.body): 1 for each in sent}
    assert json.loads(result.stdout)["messages"] == len(sent) > 500
    assert json.loads(truth.read_text()) == fleet.truth()


async def test_a_live_fleet_sends_for_as_long_as_it_is_told(tmp_path: Path) -> None:
    hub = made(tmp_path / "hub")
    live = ("--devices", "20", "--rate", "10/s", "--seconds", "1", "--backlog", "2x1h")
    async with running(hub):
        for _ in range(2):
            result = await asyncio.to_thread(invoke, "--dir", str(hub), *live)
            assert result.exit_code == 0, result.output
        held = await asyncio.to_thread(stored, hub)
    # Twice the same vehicles, in ledgers of their own: nothing of it is a repeat.
    identities = [(subject.split(".")[1:3], peek(body)) for subject, body in held]
    assert len({header.epoch for _, header in identities}) == 2
    assert set(held.values()) == {1}
    assert sum(subject.endswith(".f.battery") for subject, _ in held) > 2 * 18 * 5


async def test_a_message_has_a_header_like_the_one_that_a_source_puts_on_it(
    nats_server: NatsServer,
) -> None:
    client = await patient.connect(nats_server.url)
    api = JetStreamApi(client)
    out = out_stream(BULK)
    await api.request(f"STREAM.CREATE.{out}", {"name": out, "subjects": ["f.>"]})
    source = {
        "name": out,
        "subject_transforms": [{"src": ">", "dest": f"up.{MANY.device}.>"}],
    }
    await api.request("STREAM.CREATE.UP_X", {"name": "UP_X", "sources": [source]})
    await api.publish(MANY.leaf_subject, MANY.body)
    async with asyncio.timeout(60):
        while not (await api.request("STREAM.INFO.UP_X"))["state"]["messages"]:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    message = await client.jetstream().get_msg("UP_X", 1)
    await client.close()
    assert message.subject == f"up.{MANY.device}.{MANY.leaf_subject}"
    assert message.headers is not None
    [(name, real)] = message.headers.items()
    [(our_name, ours)] = source_header(MANY).items()
    assert our_name == name.replace("Nats", "Fake")
    place, seq, *rest = real.split(" ")
    our_place, our_seq, *our_rest = ours.split(" ")
    assert our_seq == seq
    # The last is made of what the stream is.
    assert our_rest[:-1] == rest[:-1]
    assert len(our_rest[-1]) == len(rest[-1])
    # Of another server's stream the hash of its API comes after the name.
    assert our_place.partition(":")[0] == place


async def test_messages_that_are_not_stored_are_no_success(tmp_path: Path) -> None:
    """A stream that took other than was sent ends the run, with the numbers."""
    hub = made(tmp_path / "hub")
    config = load(hub)
    async with running(hub), hub_client(hub) as control:
        api = JetStreamApi(control)
        await make_streams(api, config)
        client = await connect(config.nats.url, simulator_login(hub, config), inbox_prefix=INBOX)
        store = Store(client, {"UP_00": 3})
        await client.subscribe(f"{INBOX}.>", cb=store.acknowledged)
        with pytest.raises(HubError, match=f"UP_00 is at {ACKNOWLEDGED_EVERY}, not at"):
            await send_many(store, 100 * ACKNOWLEDGED_EVERY)
        await client.close()


async def send_many(store: Store, count: int) -> None:
    for seq in range(1, count + 1):
        await store.send(MANY._replace(seq=seq))
