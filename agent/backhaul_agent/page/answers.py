"""The questions of the technician's page, answered on the agent's loop.

Each has a name, and takes and returns JSON. There is no other question: a page may look, and publish points of the
node `test`, by the way that programs go. It sets nothing, runs nothing, and reaches nothing of the hub.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.errors import NoRespondersError

from backhaul_agent.apps.answering import refusal_of
from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.commit.framer import unpack
from backhaul_agent.commit.heads import Changed, HeadKeeper
from backhaul_agent.errors import Code, JetStreamError, RefusedError
from backhaul_agent.history.ledger_source import FoundPoints, LedgerHistory
from backhaul_agent.history.merge import HistoryQuestion
from backhaul_agent.history.stream_source import OutHistory
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.page.live_values import LiveValues
from backhaul_agent.page.past import PastChart
from backhaul_codec import CodecError
from backhaul_codec.strict.json import Reader
from backhaul_codec.subjects import SubjectError, encode_token, parse_leaf
from backhaul_codec.wire.addressed import decode_addressed
from backhaul_codec.wire.dictionaries import plain
from backhaul_runtime.clock import Clock

TEST_NODE = "test"
UNWATCHED_S = 15.0
"""A page that has not asked for so long is closed, or in a tab in the background."""
NEWEST_ROWS = 512
NEWEST_BYTES = 2 << 20
SLICE_ROWS = 32
HISTORY_S_MAX = 8.0
TEST_S_MAX = 5.0
Ask = Callable[[str, bytes], Awaitable[dict[str, Any]]]
log = structlog.get_logger("page")
_NEWEST = (
    "SELECT id, CAST(subject AS BLOB), coalesce(CAST(body AS BLOB), x'') FROM messages "
    "WHERE id < ? AND value_class <= 1 ORDER BY id DESC LIMIT ?"
)
_Name = Annotated[str, Meta(min_length=1, max_length=255)]
_Ns = Annotated[int, Meta(ge=-(1 << 62), le=1 << 62)]


class LookQuestion(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The question for all changes after a version; 0: for everything."""

    since: Annotated[int, Meta(ge=0, le=1 << 62)] = 0


class PastStretch(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One series between two times, in at most so many buckets."""

    node: _Name
    type: _Name
    from_ns: _Ns
    to_ns: _Ns
    key: Annotated[str, Meta(max_length=255)] = ""
    points_max: Annotated[int, Meta(ge=10, le=4000)] = 1000


class TestPublish(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A reading of the node `test`; ``lane``: where it waits."""

    __test__ = False  # pytest takes the name for one of its own

    type: _Name
    value: float | Annotated[str, Meta(max_length=1000)]
    lane: Annotated[str, Meta(pattern="^(bulk|live)$")] = "bulk"


_look, _stretch, _publish = Reader(LookQuestion), Reader(PastStretch), Reader(TestPublish)


class PageAnswers:
    """Answers; lives as long as the daemon.

    Args:
        keeper: the heads, of which a page shows the values.
        client: the agent's connection to the leaf server, None while there is none.
        recent: answers `agent.commands`, `agent.events`, `agent.waiting`.
    """

    def __init__(
        self,
        ledger: Ledger,
        keeper: HeadKeeper,
        live: LiveValues,
        *,
        status: Callable[[], dict[str, Any]],
        client: Callable[[], Client | None],
        recent: Ask,
        clock: Clock,
    ) -> None:
        self._ledger = ledger
        self._keeper = keeper
        self._live = live
        self._status = status
        self._client = client
        self._clock = clock
        self._asked_s = 0.0
        self._beginning = asyncio.Lock()
        self._past = asyncio.Lock()
        keeper.on_heads.append(self._on_heads)
        self._answers: dict[str, Callable[[bytes], Awaitable[dict[str, Any]]]] = {
            "look": self._look,
            "history": self._history,
            "publish": self._publish,
            **{
                name: partial(recent, f"agent.{name}") for name in ("commands", "events", "waiting")
            },
        }

    def has(self, name: str) -> bool:
        """Tell whether there is such a question."""
        return name in self._answers

    async def ask(self, name: str, body: bytes) -> dict[str, Any]:
        """Return the answer, a refusal among them."""
        try:
            return await self._answers[name](body)
        except Exception as error:  # noqa: BLE001 - who asked is answered, and others go on
            return refusal_of(f"page: {name}", error).as_json()

    def tidy(self) -> None:
        """Forget all values if no page has asked for a while; called now and then."""
        if self._live.watched and self._clock.monotonic_s() - self._asked_s > UNWATCHED_S:
            self._live.forget()

    async def _look(self, body: bytes) -> dict[str, Any]:
        question = read_program_json(_look.read, body)
        self._asked_s = self._clock.monotonic_s()
        async with self._beginning:
            if not self._live.watched:
                self._live.watched = True
                try:
                    await self._begin()
                except BaseException:
                    # Given up, or the disk is away: the next look begins anew.
                    self._live.forget()
                    raise
        self._live.look_into()
        version, values = self._live.since(question.since)
        return {
            "status": self._status(),
            "version": version,
            "values": values,
            "now_ns": self._clock.now_ns(),
        }

    async def _begin(self) -> None:
        """Take in the newest values of before this page looked: heads, and the ledger's newest messages."""
        self._live.take(head.to_point(key) for key, head in self._keeper.heads if not key.parent)
        for row in await self._ledger.staged():
            try:
                self._live.take(unpack(row.node, row.body) if row.intact else [])
            except msgspec.DecodeError:
                continue
        before, size, rows = 1 << 62, 0, 0
        while rows < NEWEST_ROWS and size < NEWEST_BYTES:
            found = await self._ledger.query(_NEWEST, before, SLICE_ROWS)
            if not found:
                return
            before, rows = found[-1][0], rows + len(found)
            size += sum(len(body) for _, _, body in found)
            for _, subject, body in found:
                self._take_message(subject, body)
            await asyncio.sleep(0)

    def _take_message(self, subject: bytes, body: bytes) -> None:
        try:
            place = parse_leaf(subject.decode(errors="replace"))
            addressed = decode_addressed(place, plain(body, self._ledger.lookup))[1]
        except (CodecError, SubjectError):
            return  # damaged: who sends it sets it aside
        self._live.take(point for parent, point in addressed if not parent and point.node)

    def _on_heads(self, changed: list[Changed]) -> None:
        if self._live.watched:
            self._live.take(each.head.to_point(each.key) for each in changed if not each.key.parent)

    async def _history(self, body: bytes) -> dict[str, Any]:
        asked = read_program_json(_stretch.read, body)
        if asked.to_ns <= asked.from_ns:
            raise RefusedError(Code.BAD_TIME, "to_ns must be later than from_ns")
        chart = PastChart(asked.from_ns, asked.to_ns, asked.points_max)
        names = (asked.node, asked.type, asked.key)
        question = HistoryQuestion(*names, asked.from_ns, asked.to_ns, asked.points_max)
        notes = []
        try:
            async with asyncio.timeout(HISTORY_S_MAX), self._past:
                async with aclosing(LedgerHistory(self._ledger, question).runs()) as runs:
                    await _take_all(chart, runs)
                notes += await self._from_out(chart, question)
        except TimeoutError:
            text = f"not read in {HISTORY_S_MAX:g} s: choose a shorter time"
            raise RefusedError(Code.BUSY, text) from None
        return {**chart.as_json(), "notes": notes}

    async def _from_out(self, chart: PastChart, question: HistoryQuestion) -> list[str]:
        """Take in points of OUT that the ledger has no more; return notes for people."""
        if (client := self._client()) is not None:
            try:
                async with aclosing(OutHistory(client, self._ledger, question).runs()) as runs:
                    await _take_all(chart, runs)
            except (NatsError, JetStreamError, OSError) as error:
                log.info("page_history_without_leaf", error=str(error))
            else:
                return []
        return [
            "the leaf server does not answer: readings that the ledger has given to it are not shown"
        ]

    async def _publish(self, body: bytes) -> dict[str, Any]:
        """Publish as a program does, over the leaf server: so the answer says whether that way works."""
        asked = read_program_json(_publish.read, body)
        subject = f"app.{TEST_NODE}.{encode_token(asked.type)}"
        client = self._client()
        if client is None:
            text = "the leaf server is away: no program can publish now"
            raise RefusedError("no_leaf", text)
        payload = msgspec.json.encode({"value": asked.value, "lane": asked.lane})
        try:
            message = await client.request(subject, payload, timeout=TEST_S_MAX)
        except NoRespondersError:
            raise RefusedError("no_leaf", "the agent does not take readings now") from None
        except (NatsError, TimeoutError):
            text = f"no answer in {TEST_S_MAX:g} s: it may be kept, or not"
            raise RefusedError("not_known", text) from None
        answer: dict[str, Any] = msgspec.json.decode(message.data)
        return answer | {"subject": subject}


async def _take_all(chart: PastChart, runs: AsyncIterator[FoundPoints]) -> None:
    async for run, _ in runs:
        chart.add(run)
