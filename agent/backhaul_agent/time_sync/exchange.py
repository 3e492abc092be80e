"""Asking the hub for the time, over core NATS: the shell around `hub_clock.HubClock`.

A question is ``{"t1"}`` on ``clk.<device>``, the answer ``{"t1", "t2", "t3"}`` on
``clkr.<device>.<token>``. Neither is stored, so an answer is fresh or does not come. With the link down
nobody at the leaf has asked for questions, so they end there and cost nothing.

Along with the time goes what the hub knows of epochs of the ledger (`uplink/epoch_sync.py`): ``"epochs"`` in a
question lists some, in the answer it has of each lane the highest seq known and the watermark, or is null
while the hub has not read all that it holds. ``"lanes"`` of ``"epoch"`` tells the hub how far lanes go
that stand still (`uplink/stall_report.py`). ``"hashes"`` asks for the hashes of some of a lane's messages
(`uplink/comparison.py`); beside ``"epochs"`` the answer has in ``"chain"`` the hash at each watermark. And
``"vehicle"`` is what this vehicle says of itself (`presence/self_report.py`): with the first question after the link
came up, or a condition changed, with that of each interval, and again until one of them is answered.
``"push"`` names the lanes that this vehicle pushes (`push/policy.py`), in an answer those that it may; where it also
asks ``"in"``, ``"downs"`` in the answer says where DOWN ends for it (`push/in_sleep.py`). ``"yield_s"`` in an answer: another machine with this identity is online; for so long it is that one's turn.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heard, heed_cancel
from backhaul_agent.config import Config
from backhaul_agent.hub_time.estimator import ClockSample
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.logs import Bursts
from backhaul_agent.uplink.comparison import Comparison
from backhaul_agent.uplink.epoch_sync import EpochWords
from backhaul_agent.uplink.reconcile import HashQuestion
from backhaul_codec.kinds import Lane
from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_codec.strict.json import Reader
from backhaul_codec.wire.envelope import HASH_BYTES

Seq = Annotated[int, Meta(ge=0, lt=1 << 62)]
Hash = Annotated[str, Meta(pattern=rf"^([0-9a-f]{{{2 * HASH_BYTES}}})?$")]
Int64 = Annotated[int, Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
# When to ask, in seconds after the first question: the first may go before the hub has told the leaf
# that it listens, and on a slow link answers take seconds. The last pause repeats.
PAUSES_S = (0.2, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
# Likewise of a question that nobody waits for: its answer may come late, and twice costs twice.
ROUTINE_PAUSES_S = PAUSES_S[3:]
WANTED = 4  # answers after the link came up, or the wall clock jumped: the best of them counts
WANTED_AGAIN = 1
YIELD_S_MAX = 300.0
ASKED_MAX = 32  # questions that an answer may still come for
log = structlog.get_logger("clock")


class LaneHashes(msgspec.Struct, frozen=True):
    """The hashes of a lane's messages from ``lo`` on, as `reconcile.judge` takes them."""

    lane: str
    epoch: int
    lo: int
    hashes: list[Hash | None]


class TimeAnswer(msgspec.Struct, frozen=True):
    """The hub's answer."""

    t1: Int64
    t2: Int64
    t3: Int64
    epochs: dict[int, dict[str, tuple[Seq, Seq]]] | None = None
    chain: dict[int, dict[str, tuple[Hash, int]]] = {}
    hashes: LaneHashes | None = None
    yield_s: Annotated[float, Meta(ge=0, le=YIELD_S_MAX)] = 0.0
    push: list[str] | None = None
    downs: dict[str, Annotated[int, Meta(ge=0)]] | None = None
    terse: bool = False


_read = Reader(TimeAnswer).read


class Exchange:
    """Asks when the link comes up, when told to, and every `interval_s`; lives as long as the daemon."""

    def __init__(
        self,
        config: Config,
        clock: HubClock,
        on_answer: Callable[[], None],
        words: EpochWords | None = None,
        report: Callable[[], VehicleReport] | None = None,
        comparison: Comparison | None = None,
    ) -> None:
        self.on_yield: Callable[[float], None] = lambda _: None
        """Called with the seconds for which this machine is to stay away."""
        self.answers = 0
        self.garbage = 0
        self.round_trip_ns: int | None = None
        self._question = f"clk.{config.device.id}"
        self._answer = f"clkr.{config.device.id}.{config.device.token}"
        self._interval_s = config.clock.interval_s
        self._clock = clock
        self._on_answer = on_answer
        self._words = words
        self._comparison = comparison
        if comparison is not None:
            comparison.ask = self._news_come
        self._asked: deque[int] = deque(maxlen=ASKED_MAX)
        self._wanted = WANTED
        self._news = asyncio.Event()
        self._still: dict[str, Any] = {}
        self._still_since = 0  # no question before this has said it
        self._report = report
        self._unreported_since: int | None = None  # likewise; None: all is said
        self.push_word: Callable[[], dict[str, Any] | None] = lambda: None
        """Returns the word on pushed lanes (`push/pusher.py`), None where there is none."""
        self.on_push: Callable[[list[Lane], bool], None] = lambda *_: None
        """Called with the hub's answer to the newest word, and whether it tells watermarks tersely."""
        self.on_down_ends: Callable[[dict[Lane, int] | None], None] = lambda _: None
        """Likewise, with the last sequences in DOWN for the streams of this vehicle, None where the hub does not say them."""
        self._push_since = 0  # no question before this has the newest word
        self._unpushed = False
        self._idle = False
        self._bursts = Bursts(clock)

    def due(self) -> None:
        """Have the hub asked now, a few times, and told of this vehicle."""
        self._wanted = WANTED
        self.report()

    def ask(self) -> None:
        """Have the hub asked now, for nothing but an answer."""
        self._wanted = max(self._wanted, WANTED_AGAIN)
        self._news.set()

    def report(self) -> None:
        """Have the hub told of this vehicle, by the next question that is answered."""
        if self._report is not None:
            self._unreported_since = self._clock.steady_ns()
        self._news.set()

    def look(self) -> None:
        """Begin to ask where something is to be learned since the last answer. To be called now and then."""
        if self._idle and self._is_due():
            self._news.set()

    def tell(self, epoch: int, lanes: Mapping[Lane, int]) -> None:
        """Have the hub told how far these lanes of an epoch go, by the next question that is answered."""
        untold = self._still["lanes"] if self._still.get("epoch") == epoch else {}
        if (still := {"epoch": epoch, "lanes": {**untold, **lanes}}) != self._still:
            self._still, self._still_since = still, self._clock.steady_ns()
        self._news.set()

    def push_word_changed(self) -> None:
        """Have the hub told of pushed lanes, by the next question that is answered."""
        self._push_since, self._unpushed = self._clock.steady_ns(), True
        self._news.set()

    async def run(self, client: Client) -> None:
        """Ask for as long as this connection lives (the caller cancels)."""
        answers = await client.subscribe(self._answer, cb=self._take)
        self.due()
        pauses_s: Sequence[float] = PAUSES_S
        try:
            while True:
                await self._ask(client, pauses_s)
                self._idle = True
                cut_short = await self._pause(self._interval_s)
                pauses_s = PAUSES_S if cut_short else ROUTINE_PAUSES_S
                self._idle = False
                self.report()
                self._wanted = max(self._wanted, WANTED_AGAIN)
        finally:
            self._idle = False
            if not client.is_closed:
                with contextlib.suppress(NatsError):
                    await answers.unsubscribe()

    async def _ask(self, client: Client, pauses_s: Sequence[float]) -> None:
        """Ask until there are as many answers as wanted, and nothing is left to be told or learned."""
        pauses = iter(pauses_s)
        while self._is_due():
            self._news.clear()
            t1 = self._clock.steady_ns()
            self._asked.append(t1)
            question: dict[str, Any] = {"t1": t1} | self._still
            if (push := self.push_word()) is not None:
                question["push"] = push
            if self._report is not None and self._unreported_since is not None:
                question["vehicle"] = self._report()
            if epochs := self._epochs():
                question["epochs"] = epochs
            if hashes := self._hashes():
                question["hashes"] = hashes._asdict()
            await client.publish(self._question, msgspec.json.encode(question))
            heed_cancel()
            if await self._pause(next(pauses, PAUSES_S[-1])):
                pauses = iter(PAUSES_S)

    def _is_due(self) -> bool:
        unsaid = self._still or self._unpushed or self._unreported_since is not None
        # A step of the hub's clock is looked at again and again, until it is confirmed or over.
        unsure = self._clock.steps.step is not None
        return self._wanted > 0 or bool(unsaid or unsure or self._epochs() or self._hashes())

    def _epochs(self) -> list[int]:
        return self._words.wanted() if self._words is not None else []

    def _hashes(self) -> HashQuestion | None:
        return self._comparison.question if self._comparison is not None else None

    def _news_come(self) -> None:
        self._news.set()

    async def _pause(self, pause_s: float) -> bool:
        """Wait; return whether the wait was cut short because the hub is to be asked anew."""
        return await heard(self._news, pause_s)

    async def _take(self, message: Msg) -> None:
        t4 = self._clock.steady_ns()
        try:
            answer = _read(message.data)
            if answer.t1 not in self._asked:
                return self._refuse("nobody asked, or it was answered before")
            self._asked.remove(answer.t1)
            sample = ClockSample(answer.t1, answer.t2, answer.t3, t4)
            self._clock.adopt(sample)
        except ValueError as error:
            return self._refuse(str(error))
        self.answers += 1
        self.round_trip_ns = sample.round_trip_ns
        self._wanted -= 1
        if answer.t1 >= self._still_since:
            self._still = {}
        if self._unreported_since is not None and answer.t1 >= self._unreported_since:
            self._unreported_since = None
        if answer.t1 >= self._push_since:
            self._unpushed = False
            self.on_push(
                answer.push or [], answer.terse
            )  # an older hub takes no pushes, and does not say so
            self.on_down_ends(answer.downs)
        self._on_answer()
        if answer.yield_s:
            self.on_yield(answer.yield_s)
        if self._words is not None and answer.epochs is not None:
            self._words.heard(answer.epochs, answer.chain)
        if self._comparison is not None and (told := answer.hashes) is not None:
            self._comparison.heard(told.lane, told.epoch, told.lo, told.hashes)
        return None

    def _refuse(self, why: str) -> None:
        self.garbage += 1
        if count := self._bursts.note("answer"):
            log.warning("time_answers_refused", answers=count, error=why)
