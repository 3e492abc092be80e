"""A watch on the messages that each server of a cluster holds: a server that lacks some of a stream does not lead it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.nats.system_requests import ask_each
from backhaul_hub.streams.replicas import (
    Damage,
    ReplicaJudge,
    clocks_off,
    pause_s,
    replicas,
    switched_off,
)
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_QUESTION, _ASKED = "$SYS.REQ.SERVER.PING.JSZ", b'{"accounts": true, "streams": true}'
_STEP_DOWN_S_MAX = 4.0


class ReplicaWatch:
    """Asks all servers now and then. If the leader of a stream lacks messages, a server that has them is to lead.

    Args:
        servers: how many there are.
        declared: the streams, as they are declared. Those in memory are not looked at: they hold seconds.
    """

    def __init__(
        self, system: Client, api: JetStreamApi, servers: int, declared: Iterable[Json]
    ) -> None:
        kept = [each for each in declared if each["storage"] == "file"]
        self._counted = frozenset(each["name"] for each in kept)
        newest_only = {each["name"] for each in kept if each.get("max_msgs_per_subject", -1) > 0}
        self._judge = ReplicaJudge(newest_only)
        self._system, self._api, self._servers = system, api, servers
        self._asking = asyncio.Lock()
        self._pause_s = pause_s(0)
        self._said: set[tuple[str, str]] = set()
        self.off: frozenset[str] = frozenset()
        """Servers that said at the last look that their JetStream is off."""
        self.clocks: dict[str, float] = {}
        """Servers whose clock differed from the others' at the last look; by seconds."""

    @property
    def damages(self) -> list[Damage]:
        """Return the damages that the last looks have shown."""
        return self._judge.damages

    async def run(self) -> None:
        """Look every two seconds (event loop's clock), and more seldom where the answers are large, for ever.

        Of one server there is nothing to compare.
        """
        trouble = Trouble(log, "replicas_unknown", HubError, NatsError, over="replicas_known_again")
        while self._servers > 1:
            async with trouble:
                await self.look()
            await asyncio.sleep(self._pause_s)

    async def look(self) -> None:
        """Look once, and have damaged leaders step down.

        Raises:
            HubError: no server answers.
        """
        async with self._asking:
            texts = await ask_each(self._system, _QUESTION, _ASKED, self._servers)
            self._pause_s = pause_s(sum(map(len, texts)))
            answers = [json.loads(each) for each in texts]
            self._judge.look(replicas(answers, self._counted))
            self.off, self.clocks = switched_off(answers), clocks_off(answers)
            self._say()
            for each in self.damages:
                if each.leads:
                    await self._step_down(each)

    async def doubt(self, stream: str) -> str:
        """Return why a loss that a stream's leader shows is not to be believed; "" where it is.

        It is none while another server still holds the messages.

        Raises:
            HubError: no server answers.
        """
        if self._servers == 1:
            return ""
        # Two looks: what is missing in one only may have come in between.
        for _ in range(2):
            await self.look()
        for each in self.damages:
            if each.stream == stream and each.leads:
                return f"{each.server}, which leads {stream}, lacks {each.missing} messages that {each.held_by} has"
        return ""

    def _say(self) -> None:
        found = {(each.server, each.stream) for each in self.damages}
        for each in self.damages:
            if (each.server, each.stream) not in self._said:
                log.error(
                    "replica_is_damaged",
                    server=each.server,
                    stream=each.stream,
                    missing=each.missing,
                    held_by=each.held_by,
                )
        for server, stream in sorted(self._said - found):
            log.info("replica_is_whole", server=server, stream=stream)
        self._said = found

    async def _step_down(self, damage: Damage) -> None:
        verb = f"STREAM.LEADER.STEPDOWN.{damage.stream}"
        body = {"placement": {"preferred": damage.held_by}}
        try:
            await self._api.request(verb, body, timeout_s=_STEP_DOWN_S_MAX)
        except HubError as error:
            log.info("damaged_leader_stays", stream=damage.stream, error=str(error))
            return
        log.warning("damaged_leader_stepped_down", server=damage.server, stream=damage.stream)
