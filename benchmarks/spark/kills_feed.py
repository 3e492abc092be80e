"""A simulated fleet that sends round after round, some of it twice; and what the hub then holds.

Each round is a run of `backhaul-hub simulate`, with ledgers of its own and the same vehicles and faults.
"""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

from nats.aio.client import Client

from backhaul_hub.config import load
from backhaul_hub.nats.connection import connect
from backhaul_hub.nats.stream_reader import Stored, StoredReader
from backhaul_hub.shards import up_name
from backhaul_hub.simulated.target import INBOX, publish_subject, simulator_login
from tests.support.kills_account import Told
from tests.support.rig.parts import program, run_to_end

SHARDS = 2
# So many vehicles are away for the first half of each round; before the first one for longer.
LATE = 8
_ROUND_S, _AWAY_S, _AWAY_S_FIRST = 60, 1, 2400
_REPEATS = 100
_READ_MESSAGES = 4096
_LOOK_S = 1.0


class Feed:
    """One fleet on one hub.

    Args:
        hub: the directory of a test hub whose server runs.
        client: a connection as its control plane has it.
        devices: how many vehicles.
        seed: of the fleet, and of what comes twice.
    """

    def __init__(self, hub: Path, client: Client, devices: int, seed: int) -> None:
        self.commands: dict[int, bytes] = {}
        """What was ever in TWIN_CMD, by sequence."""
        self.repeated = 0
        self.over = asyncio.Event()
        """Set: the round that is sent is the last one."""
        self._hub = hub
        self._client = client
        self._devices = devices
        self._seed = seed
        self._dice = random.Random(seed)
        self._up: dict[str, list[Stored]] = {up_name(shard): [] for shard in range(SHARDS)}

    @property
    def messages(self) -> list[Stored]:
        """All of UP, as far as it was read."""
        return [each for stream in self._up.values() for each in stream]

    async def begin(self) -> None:
        """Send for a second, so that there are streams."""
        await self._simulated(1, 0)

    async def send(self) -> None:
        """Send round after round until it is over."""
        away_s = _AWAY_S_FIRST
        while not self.over.is_set():
            await self._simulated(_ROUND_S, away_s)
            away_s = _AWAY_S
            await self._send_again(await self.read_up())

    async def read_up(self) -> list[tuple[str, Stored]]:
        """Read what UP has got since the last time; return it with its streams."""
        fresh = []
        for stream, known in self._up.items():
            new = await self._read(stream, known[-1].seq + 1 if known else 1)
            known += new
            fresh += [(stream, each) for each in new]
        return fresh

    async def watch_commands(self) -> None:
        """Note for ever what stands in TWIN_CMD, before it is too old to stay there."""
        while True:
            await self.read_commands()
            await asyncio.sleep(_LOOK_S)

    async def read_commands(self) -> None:
        """Note what TWIN_CMD has got since the last time."""
        for each in await self._read("TWIN_CMD", max(self.commands, default=0) + 1):
            self.commands[each.seq] = each.body

    async def alerts(self) -> list[Told]:
        """Return all of TWIN_EVENTS."""
        found = await self._read("TWIN_EVENTS", 1)
        return [Told(each.stored_ns, json.loads(each.body)) for each in found]

    async def _read(self, stream: str, seq: int) -> list[Stored]:
        reader = StoredReader(self._client, stream)
        found: list[Stored] = []
        while batch := await reader.read(found[-1].seq + 1 if found else seq, _READ_MESSAGES):
            found += batch
        return found

    async def _simulated(self, seconds: int, away_s: int) -> None:
        hot, leaking, silent = self._devices // 2, self._devices // 8, self._devices // 40
        command = [program("backhaul-hub"), "simulate", "--dir", str(self._hub), "--json"]
        command += ["--devices", str(self._devices), "--rate", "20/min"]
        command += ["--seconds", str(seconds), "--seed", str(self._seed)]
        command += ["--faults", f"hot:{hot},leak:{leaking},silent:{silent}"]
        command += ["--backlog", f"{LATE}x{away_s}s"] if away_s else []
        await run_to_end(command, log=self._hub.with_name("simulate.log"))

    async def _send_again(self, fresh: list[tuple[str, Stored]]) -> None:
        """Have UP store some messages twice, as it does when a vehicle sends again."""
        config = load(self._hub)
        login = simulator_login(self._hub, config)
        client = await connect(config.nats.url, login, inbox_prefix=INBOX)
        try:
            for stream, each in self._dice.sample(fresh, min(_REPEATS, len(fresh))):
                _, device, leaf = each.subject.split(".", 2)
                await client.request(publish_subject(stream, device, leaf), each.body, timeout=10)
                self.repeated += 1
        finally:
            await client.close()
