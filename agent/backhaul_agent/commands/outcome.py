"""How commands end on a vehicle: for each error its state, and its sentence for people. Pure."""

from __future__ import annotations

from backhaul_agent.ledger.command_rows import RunOutcome, RunState
from backhaul_codec.protocol.command_errors import ErrorCode

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
