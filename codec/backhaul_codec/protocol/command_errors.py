"""The codes of errors of commands, beside the sentences for people: decisions hang on codes alone. Pure.

Before there were codes a vehicle's word had a sentence only. `OLDER_WORDS` is the one place that knows those
sentences: it serves words of older vehicles, and the migrations of both databases.
"""

from enum import StrEnum
from fnmatch import fnmatchcase


class ErrorCode(StrEnum):
    """The reason for which a command ended as it did; a code never changes its meaning."""

    NONE = ""
    OTHER = "other"
    """A code of a newer peer, or a sentence of an older one that nobody knows."""
    # By the vehicle.
    CUT_SHORT = "cut-short"
    CUT_SHORT_LATE = "cut-short-late"
    BEFORE_LEDGER = "before-ledger"
    LATE = "late"
    LATE_BY_DISK = "late-by-disk"
    NOT_TAKEN = "not-taken"
    NO_HANDLER = "no-handler"
    CANNOT_START = "cannot-start"
    EXIT_STATUS = "exit-status"
    KILLED = "killed"
    NO_ANSWER = "no-answer"
    LEAF_AWAY = "leaf-away"
    BAD_ANSWER = "bad-answer"
    BY_PROGRAM = "by-program"
    RESULT_TOO_LARGE = "result-too-large"
    DAMAGED = "damaged"
    # By the hub.
    REFUSED = "refused"
    UNHEARD = "unheard"
    AWAY = "away"
    NEW_LEDGER = "new-ledger"
    STARTED_LATE = "started-late"
    NO_RESULT = "no-result"

    @classmethod
    def _missing_(cls, _: object) -> "ErrorCode":
        return cls.OTHER


# State, sentence as a glob without quotes (of fnmatch and of SQLite alike), code. The first that fits counts.
OLDER_WORDS = (
    ("interrupted", "cut short after * start(s); *", ErrorCode.CUT_SHORT),
    ("interrupted", "cut short*", ErrorCode.CUT_SHORT_LATE),
    ("interrupted", "sent before this vehicle?s ledger began: *", ErrorCode.BEFORE_LEDGER),
    ("interrupted", "its program did not answer (*", ErrorCode.NO_ANSWER),
    ("interrupted", "the leaf server went away meanwhile; *", ErrorCode.LEAF_AWAY),
    ("interrupted", "what was said of it is damaged in the ledger", ErrorCode.DAMAGED),
    ("expired", "its deadline had passed before it could be started", ErrorCode.LATE),
    ("expired", "its deadline passed while the ledger waited *", ErrorCode.LATE_BY_DISK),
    ("expired", "nobody took it before its deadline", ErrorCode.NOT_TAKEN),
    ("failed", "no handler: nobody answers on cmd.*", ErrorCode.NO_HANDLER),
    ("failed", "* cannot be started: *", ErrorCode.CANNOT_START),
    ("failed", "exit status *", ErrorCode.EXIT_STATUS),
    ("failed", "killed after * s", ErrorCode.KILLED),
    ("failed", "its program?s answer is *", ErrorCode.BAD_ANSWER),
    ("failed", "*", ErrorCode.BY_PROGRAM),
    ("done", "its result had * bytes, *", ErrorCode.RESULT_TOO_LARGE),
)


def code_of_older_words(state: str, error: str) -> ErrorCode:
    """Return the code of a vehicle's sentence that came without one."""
    if not error:
        return ErrorCode.NONE
    fitting = (
        code
        for its_state, glob, code in OLDER_WORDS
        if its_state == state and fnmatchcase(error, glob)
    )
    return next(fitting, ErrorCode.OTHER)


def sql_of_older_words(
    state: str, error: str, words: tuple[tuple[str, str, ErrorCode], ...] = OLDER_WORDS
) -> str:
    """Return the same as an expression of SQLite.

    Args:
        state: the expression of the state.
        error: the expression of the sentence; NULL or empty where there is none.
        words: the sentences to look for, as `OLDER_WORDS`.
    """
    cases = " ".join(
        f"WHEN {state} = '{its_state}' AND {error} GLOB '{glob}' THEN '{code}'"
        for its_state, glob, code in words
    )
    return f"CASE WHEN coalesce({error}, '') = '' THEN '' {cases} ELSE '{ErrorCode.OTHER}' END"
