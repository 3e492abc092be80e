"""Writing the audit log: entries wait in memory for a moment, and go as one message, fenced by the sequence that is expected."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import structlog
from nats.errors import Error as NatsError

from backhaul_hub.audit import rows
from backhaul_hub.audit.entry import NONE, AuditedAct, AuditEntry, digest, written
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.streams import AUDIT, AUDIT_SUBJECT
from backhaul_runtime.clock import Clock
from backhaul_runtime.jetstream import WRONG_LAST_SEQUENCE
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_GATHER_S = 0.1
_BATCH_ENTRIES = 256
WAITING_MAX = 10_000
"""Entries that wait while the stream takes none; further ones are counted, and that is the next entry."""
_STORED_S = 5.0
_TEXT_MAX = 500


class AuditLog:
    """The one writer of a hub's audit log."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: list[tuple[int, AuditedAct]] = []
        self._known: dict[str, str] = {}
        self._lost = 0
        self._noted = self._stored = 0
        self._some = asyncio.Event()
        self._moved = asyncio.Condition()

    def note(self, act: AuditedAct, at_ns: int = 0) -> None:
        """Take in an act that was done, or refused; `at_ns`: other than now. It is stored a moment later: see `stored`."""
        if len(self._waiting) >= WAITING_MAX:
            self._lost += 1
            return
        cut = replace(act, about=act.about[:_TEXT_MAX], detail=act.detail[:_TEXT_MAX])
        refused = act.refused[:_TEXT_MAX]
        self._waiting.append((at_ns or self._clock.now_ns(), replace(cut, refused=refused)))
        self._noted += 1
        self._some.set()

    async def stored(self) -> bool:
        """Wait until all that was noted is stored, a few seconds at most; return whether it is."""
        wanted = self._noted
        try:
            async with asyncio.timeout(_STORED_S), self._moved:
                await self._moved.wait_for(lambda: self._stored >= wanted)
        except TimeoutError:
            return False
        return True

    async def run(self, api: JetStreamApi, registry: Registry) -> None:
        """Store entries, for ever; trouble is logged once and waited out."""
        trouble = Trouble(log, "audit_log_takes_nothing", HubError, NatsError)
        end: tuple[int, str] | None = None
        while True:
            await self._some.wait()
            await asyncio.sleep(_GATHER_S)
            while self._waiting:
                async with trouble:
                    end = await self._store(api, registry, end or await _end(api))
                if trouble.now:
                    end = None
            self._some.clear()

    async def _store(
        self, api: JetStreamApi, registry: Registry, end: tuple[int, str]
    ) -> tuple[int, str]:
        """Store the first entries that wait; return the stream's end."""
        some = self._waiting[:_BATCH_ENTRIES]
        lost = self._lost
        entries = await self._with_pseudonyms(registry, some)
        if lost:
            entries.append(
                AuditEntry(self._clock.now_ns(), "hub", "entries-lost", detail=str(lost))
            )
        seq, before = end
        body = written(before, entries)
        try:
            answer = await api.publish(
                AUDIT_SUBJECT, body, {"Nats-Expected-Last-Sequence": str(seq)}
            )
            end = answer["seq"], digest(body)
        except JetStreamError as error:
            if error.err_code != WRONG_LAST_SEQUENCE:
                raise
            # It was stored, and the answer lost; or another control plane has led meanwhile.
            found = await api.message(AUDIT, seq=seq + 1)
            if found is None or found.data != body:
                return await _end(api)
            end = seq + 1, digest(body)
        await registry.write([rows.put_head(*end)])
        del self._waiting[: len(some)]
        self._lost -= lost
        async with self._moved:
            self._stored += len(some)
            self._moved.notify_all()
        return end

    async def _with_pseudonyms(
        self, registry: Registry, some: list[tuple[int, AuditedAct]]
    ) -> list[AuditEntry]:
        names = {act.who for _, act in some} | {act.about for _, act in some if act.person}
        if names - self._known.keys():
            # A name that is erased meanwhile has this process begin anew.
            self._known = await rows.pseudonyms(registry, sorted(names))
        known = self._known
        return [
            AuditEntry(
                at_ns,
                known[act.who],
                act.what,
                known[act.about] if act.person else act.about,
                act.detail,
                act.refused,
            )
            for at_ns, act in some
        ]


async def _end(api: JetStreamApi) -> tuple[int, str]:
    """Return sequence and digest of the stream's last message. Raises: HubError."""
    info = await api.info(AUDIT)
    seq = info["state"]["last_seq"]
    found = await api.message(AUDIT, seq=seq) if seq else None
    return (seq, digest(found.data)) if found is not None else (seq, NONE)
