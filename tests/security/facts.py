"""What there is at the hub and at the honest vehicle, seen from outside; and who is who."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
from typing import TYPE_CHECKING

from backhaul_codec.protocol.identity import leaf_name
from backhaul_codec.protocol.presence import BEAT
from backhaul_hub.continuity import lane_log
from backhaul_hub.errors import JetStreamError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.shards import PUSH
from backhaul_hub.streams.streams import SOURCED_ONLY, stream_names

if TYPE_CHECKING:
    from pathlib import Path

    from nats.aio.client import Client

    from backhaul_hub.nats.jetstream import JetStreamApi

STOLEN, HONEST, REVOKED, SOURCE = "VID-001", "VID-002", "VID-003", "VID-004"
"""Two are the attacker's: one for links of every kind, and one that stays and is sourced."""
NOBODYS = "VID-006"
"""A device to come, of whose token only the id is known to the attacker."""
CANARY = "CANARY"
"""A stream of the hub that nobody misses."""
LAMP = f"in.{HONEST}.p.lamp.on.%"
"""What DOWN holds for the honest vehicle beside its work."""
OWN_VALUE = f"$KV.TWIN_SHADOW.fleet.prod.veh.{STOLEN}.nothing"
"""A value of the stolen vehicle's own."""
EPOCH = 7
"""Of the honest vehicle's messages."""
# What the readers of UP and of the twin job's events write with each message of the honest vehicle.
_BOOKKEEPING = frozenset({"position", "block", "block_lane", "lane_log", "alert_position"})
_CONDITION = re.compile(r"alert \('[0-9a-f]+', 'health', ")
"""An alert of what the hub has noticed itself: that an attack is noticed is no harm."""

Facts = dict[str, str]


class HubFacts:
    """Says what there is that is not the attacker's own, nor changed by honest work.

    Args:
        directory: the hub's.
        api: of account HUB.
        system: a connection in the system account.
        token: the honest vehicle's.
    """

    def __init__(self, directory: Path, api: JetStreamApi, system: Client, token: str) -> None:
        self._directory = directory
        self._api = api
        self._system = system
        self._token = token

    async def read(self) -> Facts:
        """Return all facts: streams, what they hold, hub.db, the link."""
        found: Facts = {}
        for name in sorted(await stream_names(self._api)):
            info = await self._api.request(f"STREAM.INFO.{name}", {"subjects_filter": ">"})
            config = info["config"]
            # Sources come and go with connections; those of the honest one stay.
            config["sources"] = [
                each for each in config.get("sources") or [] if f".{HONEST}." in str(each)
            ]
            found[f"stream {name}"] = json.dumps(config, sort_keys=True)
            # What anybody pushes stands in PUSH, and does nothing there: harm is what a shard takes in from it.
            subjects = {} if name == PUSH else info["state"].get("subjects") or {}
            for subject, messages in subjects.items():
                if not _is_attackers(subject) and not _is_honest_work(subject):
                    found[f"messages {name} {subject}"] = str(messages)
        for name in await self._names(f"CONSUMER.NAMES.{DOWN}", "consumers"):
            if name.startswith(f"{HONEST}-"):
                found[f"durable on DOWN {name}"] = "there"
        found["commands that wait for an acknowledgement"] = await self.waiting()
        for stream, subject in ((CANARY, f"canary.{HONEST}"), (DOWN, LAMP)):
            found[f"newest of {subject}"] = await self._newest(stream, subject)
        found |= {f"hub.db {row}": "there" for row in self._rows()}
        found["honest vehicle's link"] = await self._link()
        return found

    async def waiting(self) -> str:
        """Return how many messages of the canary are with somebody who works on them."""
        try:
            worker = await self._api.consumer_info(CANARY, "worker")
        except JetStreamError as error:
            return error.description
        return str((worker or {}).get("num_ack_pending"))

    async def _names(self, verb: str, key: str) -> list[str]:
        try:
            return sorted((await self._api.request(verb)).get(key) or [])
        except JetStreamError:
            return []

    async def _newest(self, stream: str, subject: str) -> str:
        ask = {"last_by_subj": subject}
        try:
            message = (await self._api.request(f"STREAM.MSG.GET.{stream}", ask))["message"]
        except JetStreamError as error:
            return error.description
        return f"{message['seq']} {message.get('data')}"

    async def _link(self) -> str:
        answer = await self._system.request("$SYS.REQ.SERVER.PING.LEAFZ", b"", timeout=30)
        leafs = json.loads(answer.data)["data"].get("leafs") or []
        name = leaf_name(HONEST, self._token)
        mine = [str(leaf["id"]) for leaf in leafs if leaf["name"] == name]
        return " and ".join(mine) or "down"

    def _rows(self) -> list[str]:
        address = f"file:{self._directory / 'hub.db'}?mode=ro"
        with contextlib.closing(sqlite3.connect(address, uri=True)) as base:
            named = base.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            rows = [
                f"{table} {row}"
                for table in sorted({name for (name,) in named} - _BOOKKEEPING)
                for row in base.execute(f"SELECT * FROM {table}").fetchall()
            ]
            # What turns said of lanes counts as the rows that they will be.
            turns = base.execute("SELECT content FROM lane_log").fetchall()
        for turn in (lane_log.from_bytes(content) for (content,) in turns):
            rows += [f"lane {tuple(row)}" for row in turn.lanes]
            rows += [f"lane gone {tuple(key)}" for key in turn.gone]
        own_lane = f"lane ('{HONEST}', 'bulk', {EPOCH}"
        return [
            row
            for row in rows
            if STOLEN not in row
            and SOURCE not in row
            and not row.startswith(own_lane)
            and not _CONDITION.match(row)
        ]


def _is_attackers(subject: str) -> bool:
    """Tell whether a subject in a stream says that it is of a stolen vehicle, as it may be."""
    kinds = ("up.{}.", "in.{}.", "fleet.prod.veh.{}.", "$KV.TWIN_SHADOW.fleet.prod.veh.{}.")
    own = [kind.format(device) for kind in kinds for device in (STOLEN, SOURCE)]
    # A source can have the server publish in account UP, where nothing else takes a message in.
    return subject.startswith((SOURCED_ONLY, *own))


def _is_honest_work(subject: str) -> bool:
    own = (
        f"up.{HONEST}.f.gps",
        f"in.{HONEST}.p.gps.mode.%",
        f"in.{HONEST}.s.watermark.bulk",
        f"fleet.prod.veh.{HONEST}.state.gps.speed",
    )
    # What cannot be read is set aside, and says by itself whose it was. Who is there the hub says in its own time.
    return subject in own or subject.startswith(("quarantine.", BEAT))
