"""What is to be done about a command: run it, wait, or say how it ended. A pure core, no I/O.

Asked of the oldest unfinished command whenever none is being carried out. The rules, in their order,
are those of docs/commands.md; what happened outside this process is never guessed.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from backhaul_agent.config import CommandName  # noqa: TC001 - msgspec reads the annotations at run time
from backhaul_agent.ledger.command_rows import Arrived, State
from backhaul_codec.strict.json import JsonError, Reader

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_agent.config import CommandConfig
    from backhaul_agent.ledger.command_rows import CommandRow

RUNS_MAX = 3  # of an idempotent command whose runs are cut short, again and again
_ID = r"^[A-Za-z0-9_-]{1,64}\Z"
_NS_MAX = (1 << 63) - 1
CommandId = Annotated[str, Meta(pattern=_ID)]


class Step(Enum):
    """What to do, where it is not over."""

    RUN = "run"
    WAIT = "wait"


class Said(NamedTuple):
    """What an executable printed beside its result.

    ``complaint``: the beginning of its standard error, ``complaint_bytes``: how much there was;
    ``cut``: it printed more than is kept; ``left_open``: something that it left running may print on.
    """

    complaint: str = ""
    complaint_bytes: int = 0
    cut: bool = False
    left_open: bool = False


class End(NamedTuple):
    """A command is over. ``result``: JSON, or empty; ``error``: for people, "" where all is well."""

    state: State
    error: str = ""
    result: bytes = b""
    said: Said = Said()


Decision: TypeAlias = Step | End


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


def not_started(row: CommandRow, why: str) -> End:
    """Return the end of a command whose start, counted in its row, came too late to begin anything.

    An earlier one may have begun it, before it was cut short.
    """
    if row.runs > 1:
        return End(State.INTERRUPTED, f"cut short after {row.runs - 1} start(s), and then {why}")
    return End(State.EXPIRED, why)


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
        if row.state is State.RUNNING and not self._again(row):
            return End(State.INTERRUPTED, f"cut short after {row.runs} start(s); it may be done")
        if now_ns is None or since_ns is None:
            return Step.WAIT
        in_time = now_ns < row.deadline_ns
        before = row.state is State.WAITING and row.sent_ns <= since_ns
        if before and not (in_time and self._is_safe(row)):
            return End(
                State.INTERRUPTED, "sent before this vehicle's ledger began: it may have run before"
            )
        if in_time:
            return Step.RUN
        if row.state is State.RUNNING:
            return End(State.INTERRUPTED, "cut short, and its deadline has passed since")
        return End(State.EXPIRED, "its deadline had passed before it could be started")

    def _again(self, row: CommandRow) -> bool:
        return self._is_safe(row) and row.runs < RUNS_MAX

    def _is_safe(self, row: CommandRow) -> bool:
        """Whether whoever configured this vehicle said that twice is no more than once."""
        return row.name in self._idempotent
