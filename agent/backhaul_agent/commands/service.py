"""Operators' commands on the vehicle: taken in from IN, carried out one by one, answered for.

The shell around `commands.decide` (what to do) and `commands.handlers` (doing it); the queue is the ledger's
table. Before a handler is started the ledger says so, synced; result and ledger row are one commit.
Runs beside the connections, so that losing one cuts no executable short.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import msgspec
import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_agent.cancellation import heard
from backhaul_agent.commands.decide import CommandBook, CommandStep, ended, not_started, read
from backhaul_agent.commands.handlers import NotDeliveredError, Printed, ask_program, run_executable
from backhaul_agent.commit.writer import Writer
from backhaul_agent.config import CommandConfig, Config
from backhaul_agent.downlink.position import POSITION, Cursor
from backhaul_agent.errors import JetStreamError, LedgerStorageError
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.leaf.jetstream import JetStream
from backhaul_agent.leaf.streams import IN_STREAM
from backhaul_agent.ledger import command_rows
from backhaul_agent.ledger.command_rows import CommandRow, ResultAgain, RunOutcome, RunState
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.ledger.rows import Inbound, Inward, Outgoing, Statement
from backhaul_agent.ledger.system_events import JSON_DTYPE
from backhaul_agent.logs import Bursts
from backhaul_codec import CodecError, Opaque, Point, encode_point
from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_codec.subjects import result_subject
from backhaul_runtime.trouble import Trouble

LOOK_S = 1.0  # for the time to become known, and as a net under the news
ASK_AGAIN_S = 0.2
REPEATS_MAX = 64  # answered in one commit
SINCE = "commands_since"  # its name in the ledger's meta table: <epoch>:<ns by the hub's clock>
log = structlog.get_logger("commands")


class CommandService:
    """Carries out commands in the order of arrival; lives as long as the daemon."""

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        writer: Writer,
        clock: HubClock,
        client: Callable[[], Client | None],
    ) -> None:
        self.running = ""
        self.ended: dict[str, int] = {}
        # From 0 on: what is counted for the first time has grown, too (status/health.py).
        executables = [handler.name for handler in config.command if handler.run]
        self.cut = dict.fromkeys(executables, 0)
        self.left_open = dict.fromkeys(executables, 0)
        self._complaints = Bursts(clock)
        self._limits = config.commands
        self._handlers = {handler.name: handler for handler in config.command}
        self._book = CommandBook(config.command)
        self._ledger = ledger
        self._writer = writer
        self._clock = clock
        self._client = client
        self._began = (ledger.epoch, clock.steady_ns())
        self._due = asyncio.Event()
        self._untidy = asyncio.Event()

    def on_message(self, message: Inbound, changes: Inward) -> None:
        """Take in a command from IN: its row is committed with the position.

        Raises:
            ValueError: it is none.
        """
        command = read(".".join(message.tokens[1:]), message.data)
        # What was read before has its row, or had it and may not be run any more.
        if message.fresh:
            changes.commands.append(command_rows.take_in(command, self._limits.rows_max))
            changes.on_durable.append(self.wake)

    def wake(self) -> None:
        """Look at the rows: IN was read."""
        self._due.set()

    def status(self) -> dict[str, Any]:
        """Return what ``agent.status`` shows: what runs, and how commands ended since the start.

        ``cut``, ``left_open``: by name, how many results were cut, and how many executables left
        something running that holds their output. ``since_ns``: commands sent before it may have run
        already; None while nobody knows the time.
        """
        return {
            "running": self.running,
            "ended": dict(self.ended),
            "cut": dict(self.cut),
            "left_open": dict(self.left_open),
            "since_ns": self._known_since_ns(),
        }

    async def run(self) -> None:
        """Carry out what comes, for ever. Cancelling ends what runs: it counts as cut short."""
        trouble = Trouble(log, "commands_wait_for_disk", LedgerStorageError, wait_s=0.0)
        while True:
            self._due.clear()
            async with trouble:
                await self._since_ns()  # an epoch that began while nothing was to be done, too
                while await self._answer_again() or await self._next():
                    pass
            await heard(self._due, LOOK_S)

    async def tidy(self, jetstream: JetStream) -> None:
        """Take finished commands out of IN, where they would stay; the caller cancels."""
        while True:
            await asyncio.sleep(LOOK_S)
            self._untidy.clear()
            try:
                held = await jetstream.subjects(IN_STREAM, "c.>")
                ended = await command_rows.finished(
                    self._ledger, [subject.partition(".")[2] for subject in held]
                )
                # Not beyond what was read: a command that the hub sends again wants its answer.
                read_to = Cursor(str(self._ledger.meta.get(POSITION, ""))).next_seq
                for id_ in ended:
                    await jetstream.purge(IN_STREAM, filter=f"c.{id_}", seq=read_to)
            except (JetStreamError, LedgerStorageError, NatsError, OSError) as error:
                log.warning("in_not_tidied", error=str(error))
            await self._untidy.wait()

    async def _answer_again(self) -> bool:
        rows = await command_rows.owed(self._ledger, REPEATS_MAX)
        if rows:
            await self._writer.apply(
                Inward(
                    messages=[_again(row) for row in rows],
                    commands=[command_rows.answered(row.number) for row in rows],
                )
            )
            self._untidy.set()
        return bool(rows)

    async def _next(self) -> bool:
        """See to the oldest unfinished command; return whether there may be another to see to."""
        row = await command_rows.oldest(self._ledger)
        if row is None:
            return False
        decision = await self._decide(row)
        if isinstance(decision, RunOutcome):
            await self._finish(row, decision)
        elif decision is CommandStep.WAIT:
            return False
        else:
            await self._carry_out(row)
        return True

    async def _decide(self, row: CommandRow) -> CommandStep | RunOutcome:
        return self._book.decide(row, self._clock.latest_ns(), await self._since_ns())

    async def _carry_out(self, row: CommandRow) -> None:
        """Start a command, once the ledger says so, and see it through."""
        now_ns = self._clock.now_ns()
        accepted = msgspec.json.encode({"state": "accepted", "name": row.name})
        epoch = self._ledger.epoch
        await self._commit(_result(row.id, accepted, now_ns), command_rows.begin(row.number))
        if self._ledger.epoch != epoch:
            # It began with that commit: this ledger went back, and may have forgotten that this ran.
            decision = await self._decide(row)
            if isinstance(decision, RunOutcome):
                await self._finish(row, decision)
            if decision is not CommandStep.RUN:
                return  # nobody knows the time any more: it counts as a run cut short
        begun = row._replace(state=RunState.RUNNING, runs=row.runs + 1)
        self.running = row.name
        log.info("command", id=row.id, name=row.name, run=begun.runs)
        try:
            outcome = await self._run(begun)
        finally:
            self.running = ""
        again = (
            outcome.state is RunState.INTERRUPTED and await self._decide(begun) is CommandStep.RUN
        )
        if not again:
            await self._finish(begun, outcome)

    async def _run(self, row: CommandRow) -> RunOutcome:
        # The commit before may have waited for the disk, for longer than the command had.
        if self._is_late(row):
            return not_started(row, ErrorCode.LATE_BY_DISK)
        handler = self._handlers.get(row.name) or CommandConfig(row.name)
        timeout_s = handler.timeout_s or self._limits.timeout_s
        if handler.run:
            bytes_max = self._limits.result_bytes_max
            outcome, said = await run_executable(
                row, handler.run, timeout_s=timeout_s, result_bytes_max=bytes_max
            )
            self._note(row, said)
            return outcome
        return await self._ask(row, timeout_s)

    def _note(self, row: CommandRow, said: Printed) -> None:
        """Count what is wrong with an executable's output, and log what it complained of, as a field."""
        for counts, found in ((self.cut, said.cut), (self.left_open, said.left_open)):
            if found:
                counts[row.name] += 1
        if said.complaint and self._complaints.note(row.name):
            log.warning(
                "command_wrote_to_stderr", id=row.id, name=row.name,
                text=said.complaint, bytes=said.complaint_bytes,
            )  # fmt: skip

    async def _ask(self, row: CommandRow, timeout_s: float) -> RunOutcome:
        """Ask the program for it; where there is none, for a while: it may be starting too."""
        waited_s = 0.0
        while waited_s <= self._limits.handler_wait_s:
            if (client := self._client()) is not None and not client.is_closed:
                with contextlib.suppress(NotDeliveredError):
                    bytes_max = self._limits.result_bytes_max
                    return await ask_program(
                        client, row, timeout_s=timeout_s, result_bytes_max=bytes_max
                    )
                waited_s += ASK_AGAIN_S  # only while there is a server to ask
            if self._is_late(row):
                return not_started(row, ErrorCode.NOT_TAKEN)
            await asyncio.sleep(ASK_AGAIN_S)
        return ended(ErrorCode.NO_HANDLER, name=row.name)

    def _is_late(self, row: CommandRow) -> bool:
        now_ns = self._clock.latest_ns()
        return now_ns is None or now_ns >= row.deadline_ns

    async def _finish(self, row: CommandRow, outcome: RunOutcome) -> None:
        now_ns, outcome = self._clock.now_ns(), outcome._replace(runs=row.runs)
        await self._commit(
            _result(row.id, _word(row.name, outcome), now_ns),
            command_rows.finish(row.number, outcome, now_ns),
            *self._forgetting(),
        )
        state = outcome.state
        self.ended[state] = self.ended.get(state, 0) + 1
        log.info("command_ended", id=row.id, name=row.name, state=state, error=outcome.error)
        self._untidy.set()

    def _forgetting(self) -> list[Statement]:
        limits, now_ns = self._limits, self._clock.latest_ns()
        if now_ns is None:
            return []
        return [command_rows.forget(now_ns, limits.days_max, limits.rows_max)]

    async def _commit(self, message: Outgoing, *statements: Statement) -> None:
        await self._writer.apply(Inward(messages=[message], commands=list(statements)))

    def _known_since_ns(self) -> int | None:
        epoch, _, since = str(self._ledger.meta.get(SINCE, "")).partition(":")
        # No checksum covers it: where it is no number, nobody knows.
        known = epoch == str(self._ledger.epoch) and since.isdecimal()
        return int(since) if known else None

    async def _since_ns(self) -> int | None:
        """Return from when on this ledger has all commands, by the hub's clock; None: not yet.

        It is when the agent first had this epoch. A ledger that is new, or was put back from a copy
        and so got another epoch, cannot know what ran before.
        """
        if (known_ns := self._known_since_ns()) is not None:
            return known_ns
        if self._began[0] != self._ledger.epoch:
            self._began = (self._ledger.epoch, self._clock.steady_ns())
        now_ns = self._clock.latest_ns()
        if now_ns is None:
            return None
        since_ns = now_ns - (self._clock.steady_ns() - self._began[1])
        await self._writer.apply(Inward(meta={SINCE: f"{self._ledger.epoch}:{since_ns}"}))
        return since_ns


def _word(name: str, outcome: RunOutcome) -> bytes:
    """Return how a command ended as the hub is told."""
    said: dict[str, Any] = {"state": outcome.state, "name": name, "runs": outcome.runs}
    if outcome.error:
        said["error"] = outcome.error
    if outcome.code:
        said["code"] = outcome.code
    if outcome.result:
        said["result"] = msgspec.Raw(outcome.result)
    return msgspec.json.encode(said)


def _again(row: ResultAgain) -> Outgoing:
    """Return a result that is owed once more; where damage left none to read, that it is not known."""
    try:
        return _result(row.id, _word(row.name, row.outcome), row.ended_ns)
    except CodecError:
        lost = ended(ErrorCode.DAMAGED)._replace(runs=row.outcome.runs)
        return _result(row.id, _word(row.name, lost), row.ended_ns)


def _result(id_: str, said: bytes, time_ns: int) -> Outgoing:
    point = Point(node="", type="", time=time_ns, value=Opaque(JSON_DTYPE, said))
    return Outgoing("live", result_subject(id_), encode_point(point, epoch=0, seq=0))
