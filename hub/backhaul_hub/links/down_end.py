"""The end of DOWN, which must never go back.

A vehicle's IN goes by DOWN's sequences: what is written under one that it has passed reaches nobody, and nothing
says so. A store put back from an older copy, or made anew, gives such sequences out again. DOWN has one
writer, so that is known from what it was told of its own messages; DOWN then goes on beyond all of them.
"""

from __future__ import annotations

import structlog

from backhaul_hub.db.store import Registry
from backhaul_hub.lane_names import DOWN
from backhaul_hub.lane_records.lane_rows import ReadPosition, read_position, store_read
from backhaul_hub.nats.jetstream import JetStreamApi, Json

JUMP = 1 << 20
"""Sequences passed over: more than were used since what hub.db knows was written, a second ago at most."""
SHORTER_LOOKS = 3
"""Looks in a row that must say so: of a hub of several servers one that leads no more may answer, for a moment."""
log = structlog.get_logger(__name__)


class DownEnd:
    """Knows how far DOWN ever went. Make one with `open`, and have `stored` told of each publish."""

    def __init__(self, api: JetStreamApi, registry: Registry, end: int, began_at: int) -> None:
        self._api = api
        self._registry = registry
        self._end = self._kept = end
        self._began_at = began_at
        # Seen by a look, and not acknowledged yet: the answers may come in either order.
        self._unacknowledged = range(0)
        self._shorter = 0  # looks in a row at which it ended sooner
        self._went_back = False

    @classmethod
    async def open(cls, api: JetStreamApi, registry: Registry) -> DownEnd:
        """Return one with hub.db's knowledge; nothing has been published yet.

        Raises:
            HubError: the server or hub.db refused.
        """
        known = (await read_position(registry, DOWN)).seq
        return cls(api, registry, known, await _end_of_down(api))

    def stored(self, answer: Json) -> None:
        """Take in a server's acknowledgement of a message, of any stream."""
        if answer.get("stream") != DOWN:
            return
        if answer["seq"] > self._end:
            self._end = answer["seq"]
        elif answer["seq"] in self._unacknowledged:
            self._unacknowledged = range(answer["seq"] + 1, self._unacknowledged.stop)
        else:
            self._went_back = True

    async def look(self) -> bool:
        """See where DOWN ends; return whether it had gone back, and now is empty and beyond its former end.

        To be called about once a second. A sequence given out again is proof at once, an end that is too soon
        where it stays so.

        Raises:
            HubError: the server or hub.db refused; the next look does it.
        """
        known = self._end  # what is stored while we ask may not be in the answer
        ends = await _end_of_down(self._api)
        self._shorter = self._shorter + 1 if ends < known else 0
        self._went_back |= self._shorter >= SHORTER_LOOKS
        if not self._went_back:
            if ends > self._end:
                fresh = range(max(self._end, self._began_at) + 1, ends + 1)
                self._unacknowledged = range((self._unacknowledged or fresh).start, fresh.stop)
                self._end = ends
            await self._keep()
            return False
        log.error("down_went_back", ends=ends, was_at=self._end, jump=JUMP)
        self._end = max(self._end, ends) + JUMP
        await self._keep()
        await self._api.purge(DOWN, seq=self._end + 1)
        self._shorter, self._went_back = 0, False
        return True

    async def _keep(self) -> None:
        end = self._end  # what is acknowledged while it is stored is for the next look
        if end != self._kept:
            await store_read(self._registry, DOWN, ReadPosition(seq=end), {})
            self._kept = end


async def _end_of_down(api: JetStreamApi) -> int:
    info = await api.info(DOWN)
    end: int = info["state"]["last_seq"]
    return end
