"""The source of each UP stream: the relay of its shard, and nothing else, for ever.

The sources of vehicles come and go in the relay (ADR 44). UP's own begins where UP ends: the server keeps that with the
stream, and a relay that is made anew, as after its server's restart, it takes from the beginning.
"""

from __future__ import annotations

from dataclasses import dataclass

import structlog

from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.shards import relay_name, up_name

log = structlog.get_logger(__name__)

SILENT_S = 3.0
"""No link is in between, and each second has a heartbeat."""
_FIRST_WAIT_S, _WAIT_S_MAX = 6.0, 60.0


def relay_source(shard: int, source_api: str) -> Json:
    """Declare the one source of a shard's UP; `source_api`: `HubKeys.source_api`."""
    return {"name": relay_name(shard), "external": {"api": source_api, "deliver": ""}}


def unfed(info: Json) -> str:
    """Return why an UP stream takes nothing in, by its info; "" where it is fed. Pure."""
    listed = info.get("sources") or []
    if len(listed) != 1:
        return "it does not source its relay"
    if refusal := (listed[0].get("error") or {}).get("description"):
        return f"refused: {refusal}"
    if listed[0]["active"] < 0:
        return "it never heard its relay"
    silent_s: float = listed[0]["active"] / 1e9
    return f"it has heard nothing of its relay for {silent_s:.0f} s" if silent_s > SILENT_S else ""


@dataclass(slots=True)
class FeedWatch:
    """Decides when the source of one UP stream is set up again. Pure; times in monotonic seconds."""

    _since_s: float | None = None
    _wait_s: float = _FIRST_WAIT_S

    def due(self, info: Json, now_s: float) -> str:
        """Return why it is to be set up again now; "" where it is not.

        The server looks by itself, after 10 s of silence, so it is left alone for a while.
        """
        if not (why := unfed(info)):
            self._since_s, self._wait_s = None, _FIRST_WAIT_S
            return ""
        if self._since_s is None:
            self._since_s = now_s
        if now_s - self._since_s < self._wait_s:
            return ""
        self._since_s, self._wait_s = now_s, min(2 * self._wait_s, _WAIT_S_MAX)
        return why


class Feeds:
    """Has each UP stream source its relay, and nothing else.

    Args:
        source_api: `HubKeys.source_api`.
        shards: how many.
    """

    def __init__(self, api: JetStreamApi, source_api: str, shards: int) -> None:
        self._api = api
        self._source_api = source_api
        self._watches = [FeedWatch() for _ in range(shards)]

    async def look(self, shard: int, info: Json, now_s: float) -> None:
        """Take in an UP stream's info; give it its source where it has another, or where that does not work.

        A hub of before had the vehicles' sources here: the server then reads through the stream once.

        Raises:
            HubError: the server refused, or nobody answered.
        """
        has = info["config"].get("sources") or []
        if [_identity(each) for each in has] != [_identity(relay_source(shard, self._source_api))]:
            log.info("shard_is_given_its_relay", stream=up_name(shard), instead_of=len(has))
            await self.feed(shard, info["config"])
        elif why := self._watches[shard].due(info, now_s):
            log.warning("relay_kicked", stream=up_name(shard), why=why)
            await self.feed(shard, info["config"], anew=True)

    async def feed(self, shard: int, config: Json, *, anew: bool = False) -> None:
        """Have an UP stream source its relay; `anew`: set up that source again.

        Raises:
            HubError: the server refused, or nobody answered.
        """
        verb = f"STREAM.UPDATE.{up_name(shard)}"
        if anew:
            await self._api.request(verb, config | {"sources": []})
        source = relay_source(shard, self._source_api)
        await self._api.request(verb, config | {"sources": [source]})


def _identity(source: Json) -> tuple[str, str]:
    return source["name"], (source.get("external") or {}).get("api", "")
