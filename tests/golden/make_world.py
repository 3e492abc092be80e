"""Run a small fleet, and write what a hub, its backup and a vehicle's ledger hold then.

    PYTHONPATH=tests/golden/dummy_keys:. GOLDEN_KEYS=/tmp/keys python -m tests.golden.make_world /tmp/world
    python -m tests.golden.pack /tmp/world tests/golden

Commit fe95784, the last one with flat modules, ran both by a copy in which sed put that commit's names in place
of today's, here those of the rig alone. So the golden files are of that commit, and stay: run again, this makes
another world.

/tmp/world has `hub.db`, `backup/`, `ledger.db`, `answers.json` (of commands, beside the backup), and
`up.jsonl`, all messages of UP. The hub's streams keep what they hold for ten years, the longest that can be set.
What cannot be made on request is not here: hours that pass, a clock that is wrong, rows set aside.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import re
import signal
import sqlite3
import sys
from contextlib import AsyncExitStack, closing
from pathlib import Path

from backhaul_agent.client import Agent, connect
from backhaul_codec import Point
from tests.support.rig.parts import DeviceRig, HubRig, program, run_to_end
from tests.support.rig.relay import Relay

from .world_messages import NOON, SECOND, raw_messages, values

SETTINGS = """
[frame]
points_max = 10
age_s_max = {frame_age}
[ledger]
age_s_max = {ledger_age}
path = "{directory}/backhaul-agent/ledger.db"
[commands]
handler_wait_s = 0.5
[[command]]
name = "echo"
run = ["/bin/sh", "-c", "cat"]
[[command]]
name = "fail"
run = ["/bin/sh", "-c", "echo no; exit 3"]
"""
RECORDING = "t,soc,mode\n" + "".join(
    f"{1_700_000_000 + n},{n}.25,drive {n % 3}\n" for n in range(40)
)
MAP = """
[time]
column = "t"
unit = "s"
[[series]]
column = "soc"
node = "battery"
type = "soc"
[[series]]
column = "mode"
node = "drive"
type = "mode"
"""
QUESTIONS = [
    ["get", "VID-001", "--json"],
    ["get", "VID-009", "--json"],
    ["conflicts", "list", "--settled", "--json"],
    ["commands", "--json"],
    ["devices", "--json"],
    ["tree", "--json"],
    ["user", "ls", "--json"],
    ["shadow", "show", "VID-001", "--json"],
    ["artifact", "ls", "--json"],
    ["events", "VID-001", "--json"],
    [
        "completeness",
        "VID-009",
        "--from",
        "2026-01-01T11:00:00Z",
        "--to",
        "2026-01-01T14:00:00Z",
        "--json",
    ],
]
OF_DEVICE = MAP + '[device]\ncolumn = "vin"\nnames = { W1 = "VID-002" }\n'


class World:
    """A hub and its vehicles below a directory."""

    def __init__(self, directory: Path, stack: AsyncExitStack) -> None:
        self.directory = directory
        self.hub = HubRig(directory / "hub", watermark_interval_s=0.2)
        self.relays: dict[str, Relay] = {}
        self.stack = stack

    async def command(self, *words: str) -> str:
        """Run `backhaul-hub`."""
        return await run_to_end([program("backhaul-hub"), *words, "--dir", str(self.hub.directory)])

    async def vehicle(self, device: str, *nodes: str) -> DeviceRig:
        relay = Relay("127.0.0.1", self.hub.leaf_port)
        await self.stack.enter_async_context(relay)
        self.relays[device] = relay
        directory = self.directory / device
        rig = await DeviceRig.add(self.hub, device, directory, link_port=relay.port, nodes=nodes)
        self.stack.push_async_callback(rig.stop)
        return rig

    async def settled(self, device: str, rig: DeviceRig) -> None:
        """Wait until the hub has confirmed all that a vehicle has in messages."""
        async with asyncio.timeout(120), connect(rig.url) as agent:
            while True:
                status = await agent.status()
                lanes = status["lanes"].values()
                if all(lane["watermark"] == lane["last_seq"] for lane in lanes):
                    return
                await asyncio.sleep(0.05)

    async def until(self, words: list[str], wanted: str) -> None:
        """Wait until a command says something."""
        async with asyncio.timeout(120):
            while wanted not in await self.command(*words):  # noqa: ASYNC110 - another process
                await asyncio.sleep(0.2)


def configure(rig: DeviceRig, *, frame_age: float = 600.0, ledger_age: float = 0.0) -> None:
    directory = rig.agent_toml.parent
    kept = rig.agent_toml.with_name("agent.toml.first")
    if not kept.exists():
        kept.write_text(rig.agent_toml.read_text())
    tables = [each for each in kept.read_text().split("\n[") if not each.startswith("ledger]")]
    more = SETTINGS.format(frame_age=frame_age, ledger_age=ledger_age, directory=directory)
    rig.agent_toml.write_text("\n[".join(tables) + more)


async def restart(rig: DeviceRig, **settings: float) -> None:
    await rig.agent.stop()
    configure(rig, **settings)
    await rig.start_agent()
    await vouched(rig)


async def vouched(rig: DeviceRig) -> None:
    """Wait until it is known whether the ledger's epoch goes on."""
    async with asyncio.timeout(60), connect(rig.url) as agent:
        while (await agent.status())["ledger"]["epoch"] == "waiting":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def keep(agent: Agent, dice: random.Random, first: int, count: int) -> None:
    for number in range(first, first + count):
        await agent.publish_frame("battery", values(dice, number))
        if number % 3 == 0:
            at = NOON + number * SECOND
            await agent.publish("battery", "limit", number / 4, key="upper", time=at, lane="live")
        if number % 25 == 0:
            await agent.event(
                "armed", previous="off", reason=f"number {number}", time=NOON + number
            )


def keep_for_years(hub_toml: Path) -> None:
    """Have nothing of the backup be too old when it is put back, and no stream claim much of a disk."""
    text = hub_toml.read_text()
    text = re.sub(r"(?m)^(\w+_bytes_max|bytes_max) = \d+", r"\1 = 67108864", text)
    text = text.replace("age_days_max = 30\n", "age_days_max = 3650\n")
    text = text.replace("[twin]\n", "[twin]\nevents_age_days_max = 3650\n")
    hub_toml.write_text(text + "\n[commands]\ndays_max = 3650.0\ndeadline_s_max = 31536000.0\n")


async def run(directory: Path, out: Path, stack: AsyncExitStack) -> None:
    world, dice = World(directory, stack), random.Random(16)
    await world.hub.init()
    keep_for_years(world.hub.directory / "hub.toml")
    stack.push_async_callback(world.hub.stop)
    await world.hub.start()
    command = world.command
    await command("node", "create", "depot-1", "name=Depot")
    one = await world.vehicle("VID-001")
    configure(one)
    await one.start()
    three = await world.vehicle("VID-003", "gps")
    configure(three, frame_age=0.1)
    await three.start()
    for rig in (one, three):
        await vouched(rig)
    await command("node", "mirror", "VID-001", "--under", "depot-1")

    # Readings, states, events, a recording, and what is set at either end.
    async with connect(one.url) as agent:
        await keep(agent, dice, 1, 100)
    (directory / "recording.csv").write_text(RECORDING)
    (directory / "map.toml").write_text(MAP)
    of_one = ["--config", str(one.agent_toml)]
    replay = [program("backhaul-agent"), "replay", str(directory / "recording.csv"), "--map"]
    await run_to_end([*replay, str(directory / "map.toml"), "--speed", "max", *of_one])
    async with connect(three.url) as agent:
        for number in range(30):
            at = NOON + number * SECOND
            await agent.publish("gps", "lat", 48 + number / 64, time=at)
            await agent.publish("gps", "fix", number % 4, time=at, lane="live")
            await agent.publish("cabin", "temp", 20.5 + number / 8, time=at)
            await agent.publish(
                "cabin", "door", "open" if number % 2 else "closed", time=at, lane="live"
            )
    set_at = [program("backhaul-agent"), "set", *of_one]
    await run_to_end([*set_at, "battery.cells:int64=96", "battery.name=front"])
    await command("set", "VID-001", "battery.limit.lower=12.5", "--who", "alice")
    await command("shadow", "set", "VID-001", "cabin.target=21.5", "cabin.mode=eco")
    for name, code in (("echo", 0), ("fail", 1), ("nobody", 1)):
        words = ["command", "VID-001", name, "--params", '{"n": 7}', "--id", f"id-{name}", "--wait"]
        try:
            await command(*words)
        except Exception:  # noqa: BLE001 - it ends with 1
            assert code, name
    await world.settled("VID-001", one)

    # The ledger goes back: an epoch ends.
    await one.agent.stop(signal.SIGKILL)
    state = directory / "VID-001" / "backhaul-agent"
    await run_to_end(["cp", "-a", str(state), str(directory / "older")])
    await one.start_agent()
    await vouched(one)
    async with connect(one.url) as agent:
        await keep(agent, dice, 101, 20)
    await world.settled("VID-001", one)
    await one.agent.stop(signal.SIGKILL)
    await run_to_end(["rm", "-r", str(state)])
    await run_to_end(["cp", "-a", str(directory / "older"), str(state)])
    await one.start_agent()
    await vouched(one)
    async with connect(one.url) as agent:
        await keep(agent, dice, 121, 120)
    await world.settled("VID-001", one)

    # Without a link: rows are given up, and both ends write what the other does not know of.
    await restart(one, ledger_age=3.0)
    await world.relays["VID-001"].cut()
    async with connect(one.url) as agent:
        await keep(agent, dice, 241, 12)
    await run_to_end([*set_at, "battery.cells:int64=97", "battery.name=rear"])
    await command("set", "VID-001", "battery.cells:int64=98", "battery.name=middle", "--who", "bob")
    await asyncio.sleep(6)
    async with connect(one.url) as agent:
        await keep(agent, dice, 253, 2)
    await world.relays["VID-001"].heal()
    await world.until(["conflicts", "list", "--json"], '"cells"')
    listed = json.loads(await command("conflicts", "list", "--json"))["conflicts"]
    await command("conflicts", "accept", str(listed[0]["id"]), "--who", "carol")
    await restart(one)
    await world.settled("VID-001", one)

    # A vehicle of former versions: its agent has made the streams, and ends.
    nine = await world.vehicle("VID-009")
    await nine.start()
    await world.settled("VID-009", nine)
    await nine.agent.stop()
    async with nine.connection() as leaf:
        jetstream = leaf.jetstream()
        for subject, body in raw_messages(dice):
            await jetstream.publish(subject, body)
    async with asyncio.timeout(120):
        while True:
            report = json.loads(await command("devices", "--json"))
            [found] = [each for each in report["devices"] if each["device"] == "VID-009"]
            if found.get("lanes", {}).get("bulk", {}).get("epoch") == 72:
                break
            await asyncio.sleep(0.2)

    # Whom the hub knows, and what it was told.
    await command("add-device", "VID-002")
    logs = directory / "logs"
    logs.mkdir()
    rows = "".join(f"{1_600_000_000 + n},{n}.5,m{n % 2},W1\n" for n in range(60))
    (logs / "a.csv").write_text(f"t,soc,mode,vin\n{rows}")
    (directory / "of-device.toml").write_text(OF_DEVICE)
    await command("import", str(logs), "--map", str(directory / "of-device.toml"))
    await command("revoke", "VID-002")
    await command("enrol", "VID-004")
    await command("enrol", "VID-004", "--link-kbit-s", "64", "--per-node", "--node", "gps")
    await command("user", "add", "alice", "--group", "depot-1", "--may", "command")
    await command("user", "add", "bob", "--group", "fleet")
    await command("user", "rm", "bob")
    await command("rotate", "VID-003")
    await world.until(["devices", "--json"], '"rotat')
    (directory / "map.bin").write_bytes(bytes(range(256)) * 8)
    await command("artifact", "put", str(directory / "map.bin"), "--description", "a map")
    await world.settled("VID-003", three)
    await three.stop()

    # Away from now on: the hub has a command, a write and a wish for it; it has all that the hub lacks.
    await world.relays["VID-001"].cut()
    await asyncio.sleep(1)
    away = ["command", "VID-001", "echo", "--id", "id-away", "--deadline", "31000000"]
    await command(*away, "--params", '{"n": 8}')
    await command("command", "VID-001", "echo", "--id", "id-late", "--deadline", "0.5")
    await command("set", "VID-001", "battery.limit.lower=13.5")
    await asyncio.sleep(3)
    await command("backup", str(out / "backup"))
    answers = {" ".join(words): json.loads(await command(*words)) for words in QUESTIONS}
    (out / "answers.json").write_text(json.dumps(answers, indent=1, ensure_ascii=False) + "\n")
    async with connect(one.url) as agent:
        await keep(agent, dice, 255, 30)
        await agent.publish_batch(
            "cabin", [Point("cabin", "temp", NOON + n, 20.0) for n in range(5)]
        )
        await agent.publish_batch("motor", [Point("motor", "rpm", NOON + n, n) for n in range(3)])
    await asyncio.sleep(1)
    await one.agent.stop(signal.SIGKILL)
    save(directory / "VID-001" / "backhaul-agent" / "ledger.db", out / "ledger.db")
    await dump(world.hub, out / "up.jsonl")
    await world.hub.control.stop()
    save(world.hub.directory / "hub.db", out / "hub.db")


async def dump(hub: HubRig, path: Path) -> None:
    """Write all messages of UP, in the order of the stream."""
    async with hub.connection() as client:
        jetstream = client.jetstream(prefix="upapi")
        last = (await jetstream.stream_info("UP_00")).state.last_seq
        with path.open("w") as file:
            for seq in range(1, last + 1):
                message = await jetstream.get_msg("UP_00", seq, direct=True)
                body = base64.b64encode(message.data or b"").decode()
                file.write(json.dumps([message.subject, body]) + "\n")


def save(source: Path, target: Path) -> None:
    """Copy a database: one file, with all that its log has."""
    with closing(sqlite3.connect(source)) as origin, closing(sqlite3.connect(target)) as copy:
        origin.backup(copy)
        copy.execute("PRAGMA journal_mode = DELETE")


async def main() -> None:
    out = Path(sys.argv[1])
    out.mkdir(parents=True)
    directory = out / "world"
    directory.mkdir()
    async with AsyncExitStack() as stack:
        await run(directory, out, stack)


if __name__ == "__main__":
    asyncio.run(main())
