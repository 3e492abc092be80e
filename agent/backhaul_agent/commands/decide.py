"""What is to be done about a command: run it, wait, or say how it ended. A pure core, no I/O.

Asked of the oldest unfinished command whenever none is being carried out. The rules, in their order,
are those of docs/commands.md; what happened outside this process is never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from typing import Annotated, TypeAlias

import msgspec
from msgspec import Meta

from backhaul_agent.config import (
    CommandConfig,
    CommandName,
)
from backhaul_agent.ledger.command_rows import Arrived, CommandRow, RunOutcome, RunState
from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_codec.strict.json import JsonError, Reader

# Decisions hang on state and code; nothing reads the sentences (docs/commands.md).
ENDS = {
    ErrorCode.CUT_SHORT: (
        RunState.INTERRUPTED,
        "cut short after {starts} start(s); it may be done",
    ),
    ErrorCode.CUT_SHORT_LATE: (
        RunState.INTERRUPTED,
        "cut short after {starts} start(s), and then {why}",
    ),
    ErrorCode.BEFORE_LEDGER: (
        RunState.INTERRUPTED,
        "sent before this vehicle's ledger began: it may have run before",
    ),
    ErrorCode.NO_ANSWER: (
        RunState.INTERRUPTED,
        "its program did not answer ({why}); it may be done",
    ),
    ErrorCode.LEAF_AWAY: (
        RunState.INTERRUPTED,
        "the leaf server went away meanwhile; it may be done",
    ),
    ErrorCode.DAMAGED: (RunState.INTERRUPTED, "what was said of it is damaged in the ledger"),
    ErrorCode.LATE: (RunState.EXPIRED, "its deadline had passed before it could be started"),
    ErrorCode.LATE_BY_DISK: (
        RunState.EXPIRED,
        "its deadline passed while the ledger waited for the disk",
    ),
    ErrorCode.NOT_TAKEN: (RunState.EXPIRED, "nobody took it before its deadline"),
    ErrorCode.NO_HANDLER: (RunState.FAILED, "no handler: nobody answers on cmd.{name}"),
    ErrorCode.CANNOT_START: (RunState.FAILED, "{program} cannot be started: {why}"),
    ErrorCode.EXIT_STATUS: (RunState.FAILED, "exit status {status}"),
    ErrorCode.KILLED: (RunState.FAILED, "killed after {seconds:g} s"),
    ErrorCode.BAD_ANSWER: (RunState.FAILED, "its program's answer is {why}"),
    ErrorCode.BY_PROGRAM: (RunState.FAILED, "{why}"),
    ErrorCode.RESULT_TOO_LARGE: (
        RunState.DONE,
        "its result had {bytes} bytes, {bytes_max} are kept: none is",
    ),
}


def ended(code: ErrorCode, **details: object) -> RunOutcome:
    """Return the outcome of a command that ended with an error; details are those of its sentence."""
    state, text = ENDS[code]
    return RunOutcome(state, code, text.format(**details))


def cut_short(starts: int, why: ErrorCode) -> RunOutcome:
    """Return the outcome of a command that was cut short, and could not be started again."""
    return ended(ErrorCode.CUT_SHORT_LATE, starts=starts, why=ended(why).error)


RUNS_MAX = 3  # of an idempotent command whose runs are cut short, again and again
_ID = r"^[A-Za-z0-9_-]{1,64}\Z"
_NS_MAX = (1 << 63) - 1
CommandId = Annotated[str, Meta(pattern=_ID)]


class CommandStep(Enum):
    """What to do, where it is not over."""

    RUN = "run"
    WAIT = "wait"


Decision: TypeAlias = CommandStep | RunOutcome


class _Sent(msgspec.Struct, frozen=True):
    """The JSON of a message ``c.<id>``; fields that a newer hub adds are passed over."""

    name: CommandName
    sent_ns: Annotated[int, Meta(ge=0, le=_NS_MAX)]
    deadline_ns: Annotated[int, Meta(ge=0, le=_NS_MAX)]
    params: msgspec.Raw = msgspec.Raw(b"null")


_read = Reader(_Sent).read


def read(id_: str, data: bytes) -> Arrived:
    """Read a command as it came from the hub.

    Raises:
        ValueError: it is none.
    """
    try:
        msgspec.convert(id_, CommandId)
        sent = _read(data)
    except (msgspec.DecodeError, JsonError) as error:
        raise ValueError(f"no command: {error}") from error
    return Arrived(id_, sent.name, bytes(sent.params), sent.sent_ns, sent.deadline_ns)


def not_started(row: CommandRow, why: ErrorCode) -> RunOutcome:
    """Return the outcome of a command whose start, counted in its row, came too late to begin anything.

    An earlier one may have begun it, before it was cut short.
    """
    if row.runs > 1:
        return cut_short(row.runs - 1, why)
    return ended(why)


class CommandBook:
    """The rules, for the handlers of one configuration."""

    def __init__(self, handlers: Iterable[CommandConfig]) -> None:
        self._idempotent = {handler.name for handler in handlers if handler.idempotent}

    def decide(self, row: CommandRow, now_ns: int | None, since_ns: int | None) -> Decision:
        """Say what to do about a command that nothing is being done about.

        Args:
            row: unfinished; RUNNING means that a run was cut short.
            now_ns: the latest it can be by the hub's clock; None while nobody knows.
            since_ns: from when on by that clock this ledger has all that came; None as well then.
        """
        if row.state is RunState.RUNNING and not self._again(row):
            return ended(ErrorCode.CUT_SHORT, starts=row.runs)
        if now_ns is None or since_ns is None:
            return CommandStep.WAIT
        in_time = now_ns < row.deadline_ns
        before = row.state is RunState.WAITING and row.sent_ns <= since_ns
        if before and not (in_time and self._is_safe(row)):
            return ended(ErrorCode.BEFORE_LEDGER)
        if in_time:
            return CommandStep.RUN
        if row.state is RunState.RUNNING:
            return cut_short(row.runs, ErrorCode.LATE)
        return ended(ErrorCode.LATE)

    def _again(self, row: CommandRow) -> bool:
        return self._is_safe(row) and row.runs < RUNS_MAX

    def _is_safe(self, row: CommandRow) -> bool:
        """Whether whoever configured this vehicle said that twice is no more than once."""
        return row.name in self._idempotent
