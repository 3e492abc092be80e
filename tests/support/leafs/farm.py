"""Leaf servers that hold the links of many vehicles: an account, a JetStream store and a remote for each."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from backhaul_agent.config import Config, parse
from backhaul_agent.enrol.agent_toml import AGENT_KEY
from backhaul_agent.enrol.vehicle_files import (
    AGENT_TOML,
    DEVICE_CREDS,
    LEAF_CONF,
    Wishes,
    files_of,
)
from backhaul_codec.programs.nats_conf import quoted
from backhaul_codec.protocol.credentials import Credentials, parse_seed
from backhaul_hub.config import load
from backhaul_hub.enrol.add_device import DeviceSettings, create_device
from backhaul_hub.nats.nkey import new_key
from backhaul_runtime.clock import SystemClock
from tests.support.errors import TrialError
from tests.support.hub_acts import documents_of, opened
from tests.support.rig.parts import Part, program
from tests.support.rig.patient import connect
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from tests.support.rig.parts import HubRig
    from tests.support.rig.patient import PatientClient

_LOOK_S = 0.25
NAME = "leafs-"
"""The beginning of the name of each server; the hub's control plane knows none of them."""
_SYSTEM = {"user": "system", "password": "system"}
_REMOTE = re.compile(r"^  remotes: \[(\{.*\})\]$", re.MULTILINE | re.DOTALL)
_LOCAL_SETTINGS = re.compile(
    r"^(?:max_payload|feature_flags|ping_interval|ping_max)\b.*$", re.MULTILINE
)
_RECONNECT = re.compile(r"^  reconnect: .*$", re.MULTILINE)
# What a server with a vehicle's domain maps in each of its accounts; here there is no domain, so each account maps its own.
_API = ("INFO", "STREAM.>", "CONSUMER.>", "DIRECT.>", "META.>", "SERVER.>", "ACCOUNT.>")


@dataclass(frozen=True, slots=True)
class Vehicle:
    """A vehicle that has enrolled, and its files."""

    config: Config
    leaf_conf: str
    agent_seed: str

    @property
    def id(self) -> str:
        """Return its id, which is the name of its account."""
        return self.config.device.id

    def account(self) -> str:
        """Render its account: VEH of its apps.conf without programs, and the domain."""
        key = parse_seed(self.agent_seed).public_key
        api = (f'"$JS.{self.id}.API.{verb}": "$JS.API.{verb}"' for verb in _API)
        return (
            f"  {quoted(self.id)} {{ jetstream: enabled, users: [{{ nkey: {key} }}], "
            f"mappings: {{ {', '.join(api)} }} }}"
        )

    def remote(self, *, dials: bool) -> str:
        """Render its link, as its leaf.conf has it; with `dials` false as `link.mode` switches it off."""
        found = _REMOTE.search(self.leaf_conf)
        if found is None or found[1].count("account: VEH") != 1:
            raise TrialError("leaf.conf has no remote of account VEH")
        account = f"account: {quoted(self.id)}{'' if dials else ', disabled: true'}"
        return found[1].replace("account: VEH", account)


async def enrol(hub: HubRig, ids: Sequence[str], directory: Path) -> list[Vehicle]:
    """Enrol vehicles at a hub whose control plane does not run, and make their files as `backhaul-agent enrol` does."""
    config, vehicles = load(hub.directory), []
    documents = documents_of(hub.directory, config)
    async with opened(hub.directory) as registry:
        for id_ in ids:
            await create_device(registry, documents, SystemClock(), id_, DeviceSettings())
            vehicles.append(_vehicle(documents.read(id_), directory / id_))
    return vehicles


def _vehicle(identity: Any, directory: Path) -> Vehicle:
    directory.mkdir(parents=True)
    wishes = Wishes(client_port=1, state_dir=directory, open=True)
    files = {each.name: each.text for each in files_of(identity, wishes, directory, {}, _new_key)}
    (directory / DEVICE_CREDS).write_text(files[DEVICE_CREDS])
    (directory / DEVICE_CREDS).chmod(0o600)
    config = parse(files[AGENT_TOML], directory / AGENT_TOML)
    return Vehicle(config, files[LEAF_CONF], files[AGENT_KEY].strip())


def _new_key() -> Credentials:
    return parse_seed(new_key("user").seed)


class LeafServer:
    """One nats-server with the links of some vehicles."""

    def __init__(self, number: int, vehicles: Sequence[Vehicle], directory: Path) -> None:
        self.vehicles = vehicles
        self.port = free_port()
        name = f"{NAME}{number:02d}"
        self._conf = directory / f"{name}.conf"
        self._store = directory / name
        self._name = name
        self.part = Part(
            name, [program("nats-server"), "-c", str(self._conf)], directory / f"{name}.log"
        )

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"nats://127.0.0.1:{self.port}"

    async def start(self, *, dials: bool) -> None:
        """Start it, and wait until it takes connections."""
        self._conf.write_text(self._text(dials=dials))
        await self.part.start()
        await self.part.wait_listening(self.port)

    def dial(self) -> None:
        """Have it dial, where it was started without."""
        self._conf.write_text(self._text(dials=True))
        self.part.send(signal.SIGHUP)

    def _text(self, *, dials: bool) -> str:
        first = self.vehicles[0].leaf_conf
        settings = "\n".join(_LOCAL_SETTINGS.findall(first))
        accounts = "\n".join(each.account() for each in self.vehicles)
        remotes = ",\n".join(each.remote(dials=dials) for each in self.vehicles)
        [reconnect] = _RECONNECT.findall(first)
        system = f"user: {_SYSTEM['user']}, password: {_SYSTEM['password']}"
        return f"""\
server_name: {self._name}
listen: "127.0.0.1:{self.port}"
{settings}
jetstream {{ store_dir: {quoted(str(self._store))}, max_file_store: 64GB }}
system_account: SYS
accounts {{
  SYS {{ users: [{{ {system} }}] }}
{accounts}
}}
leafnodes {{
{reconnect}
  remotes: [{remotes}]
}}
"""


class LeafFarm:
    """The leaf servers of a fleet.

    Args:
        vehicles: all of them.
        each: how many links one server holds.
        directory: where they keep their files; exists.
    """

    def __init__(self, vehicles: Sequence[Vehicle], each: int, directory: Path) -> None:
        self.vehicles = vehicles
        self.servers = [
            LeafServer(number, vehicles[at : at + each], directory)
            for number, at in enumerate(range(0, len(vehicles), each))
        ]
        self._systems: list[PatientClient] = []

    async def start(self, *, dials: bool) -> None:
        """Start all servers."""
        for server in self.servers:
            await server.start(dials=dials)
            self._systems.append(await connect(server.url, **_SYSTEM))

    async def stop(self) -> None:
        """Stop all servers."""
        for system in self._systems:
            await system.close()
        await asyncio.gather(*(server.part.stop() for server in self.servers))

    def dial(self) -> None:
        """Have all servers dial that were started without."""
        for server in self.servers:
            server.dial()

    async def dial_in_turn(self) -> None:
        """Have servers dial that were started without, one once the links of the one before are up."""
        for server in self.servers:
            server.dial()
            while not {each.id for each in server.vehicles} <= (await self.linked()).keys():
                server.part.assert_alive()
                await asyncio.sleep(_LOOK_S)

    async def linked(self) -> dict[str, tuple[int, int]]:
        """Return the vehicles whose link is up, as their servers have it now: each link's number there, and the hub's port."""
        answers = await asyncio.gather(
            *(each.request("$SYS.REQ.SERVER.PING.LEAFZ", b"") for each in self._systems)
        )
        leafs = (json.loads(answer.data)["data"].get("leafs") or [] for answer in answers)
        return {leaf["account"]: (leaf["id"], leaf["port"]) for each in leafs for leaf in each}


@asynccontextmanager
async def farm_of(
    vehicles: Sequence[Vehicle], each: int, directory: Path, *, dials: bool = True
) -> AsyncIterator[LeafFarm]:
    """Run the leaf servers of these vehicles; with `dials` false they dial once they are told to."""
    farm = LeafFarm(vehicles, each, directory)
    try:
        await farm.start(dials=dials)
        yield farm
    finally:
        await farm.stop()


def name_leafs(hub: HubRig) -> None:
    """Have a hub's control plane know whose each of these links is (named_leafs.py); call it before it starts."""
    hub.control = Part(
        "hub control plane",
        [
            sys.executable,
            "-m",
            "tests.support.leafs.named_leafs",
            "up",
            "--dir",
            str(hub.directory),
        ],
        hub.directory.parent / "hub-control.log",
    )
