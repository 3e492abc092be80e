"""How commands end on a vehicle: for each error its state, and its sentence for people. Pure."""

from __future__ import annotations

from backhaul_agent.ledger.command_rows import Outcome, State
from backhaul_codec.protocol.command_errors import ErrorCode

# Decisions hang on state and code; nothing reads the sentences (docs/commands.md).
ENDS = {
    ErrorCode.CUT_SHORT: (State.INTERRUPTED, "cut short after {starts} start(s); it may be done"),
    ErrorCode.CUT_SHORT_LATE: (
        State.INTERRUPTED,
        "cut short after {starts} start(s), and then {why}",
    ),
    ErrorCode.BEFORE_LEDGER: (
        State.INTERRUPTED,
        "sent before this vehicle's ledger began: it may have run before",
    ),
    ErrorCode.NO_ANSWER: (
        State.INTERRUPTED,
        "its program did not answer ({why}); it may be done",
    ),
    ErrorCode.LEAF_AWAY: (
        State.INTERRUPTED,
        "the leaf server went away meanwhile; it may be done",
    ),
    ErrorCode.DAMAGED: (State.INTERRUPTED, "what was said of it is damaged in the ledger"),
    ErrorCode.LATE: (State.EXPIRED, "its deadline had passed before it could be started"),
    ErrorCode.LATE_BY_DISK: (
        State.EXPIRED,
        "its deadline passed while the ledger waited for the disk",
    ),
    ErrorCode.NOT_TAKEN: (State.EXPIRED, "nobody took it before its deadline"),
    ErrorCode.NO_HANDLER: (State.FAILED, "no handler: nobody answers on cmd.{name}"),
    ErrorCode.CANNOT_START: (State.FAILED, "{program} cannot be started: {why}"),
    ErrorCode.EXIT_STATUS: (State.FAILED, "exit status {status}"),
    ErrorCode.KILLED: (State.FAILED, "killed after {seconds:g} s"),
    ErrorCode.BAD_ANSWER: (State.FAILED, "its program's answer is {why}"),
    ErrorCode.BY_PROGRAM: (State.FAILED, "{why}"),
    ErrorCode.RESULT_TOO_LARGE: (
        State.DONE,
        "its result had {bytes} bytes, {bytes_max} are kept: none is",
    ),
}


def ended(code: ErrorCode, **details: object) -> Outcome:
    """Return the outcome of a command that ended with an error; details are those of its sentence."""
    state, text = ENDS[code]
    return Outcome(state, code, text.format(**details))


def cut_short(starts: int, why: ErrorCode) -> Outcome:
    """Return the outcome of a command that was cut short, and could not be started again."""
    return ended(ErrorCode.CUT_SHORT_LATE, starts=starts, why=ended(why).error)
