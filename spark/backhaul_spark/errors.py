"""The errors of backhaul_spark, as one tree: every error carries its facts as fields, and `hint`, the remedy for the operator."""

from __future__ import annotations

from typing import ClassVar


class BackhaulSparkError(Exception):
    """Base of all errors of this package; ``hint`` names the remedy."""

    hint: str = ""


class OptionError(BackhaulSparkError):
    """An option, or a key of a settings file, has an invalid value."""

    def __init__(self, option: str, value: object, expected: str) -> None:
        self.option, self.value, self.expected = option, value, expected
        super().__init__(f"{option}={value!r}: expected {expected}")


class HubServerError(BackhaulSparkError):
    """Something is wrong between this process and the hub's nats-server."""


class UnreachableError(HubServerError):
    """No server of the list could be reached, or the connection broke for good."""

    hint = "is nats-server running there? `backhaul-hub up` starts and checks it"

    def __init__(self, servers: str, cause: str) -> None:
        self.servers, self.cause = servers, cause
        super().__init__(f"cannot reach the hub at {servers}: {cause}")


class LoginRefusedError(HubServerError):
    """The server closed the door: user, password, key or certificate, or their time is over."""

    hint = "check the credentials file, or the user and password options"

    def __init__(self, server: str, reason: str) -> None:
        self.server, self.reason = server, reason
        super().__init__(f"{server} refused the login: {reason}")


class NoAnswerError(HubServerError):
    """A request was sent and no answer came in time."""

    hint = "the hub may be overloaded, or this user lacks rights on $JS.API.>; see its log"

    def __init__(self, server: str, what: str, waited_s: float) -> None:
        self.server, self.what, self.waited_s = server, what, waited_s
        super().__init__(f"{server} gave no answer to {what} within {waited_s:g} s")


class ServerBehindError(HubServerError):
    """A server of a cluster lags behind the stream's leader; another one may not."""

    hint = "see that all servers of the cluster run and reach one another"

    def __init__(self, server: str, stream: str, detail: str) -> None:
        self.server, self.stream = server, stream
        super().__init__(f"{server}: {stream} {detail}")


class HubProtocolError(HubServerError):
    """The server said something that this client does not understand."""

    def __init__(self, server: str, detail: str) -> None:
        self.server, self.detail = server, detail
        super().__init__(f"{server}: {detail}")


class NobodyTakesError(HubServerError):
    """No stream takes a published message: it is not there, or this user may not publish to it."""

    hint = "`backhaul-hub up` makes the streams; the twin job logs in by creds/twin.creds"

    def __init__(self, detail: str) -> None:
        super().__init__(f"the hub takes no alerts and commands: {detail}")


class PublishRefusedError(HubServerError):
    """A stream refused a message because of its contents."""

    hint = "a rule's alert is not as the hub takes it: nothing goes on before the rule is mended"

    def __init__(self, detail: str) -> None:
        super().__init__(f"the hub refused an alert or a command: {detail}")


class StreamError(BackhaulSparkError):
    """One stream cannot be read as asked."""

    def __init__(self, stream: str, text: str) -> None:
        self.stream = stream
        super().__init__(text)


class StreamMissingError(StreamError):
    """The stream does not exist."""

    hint = (
        "`backhaul-hub up` makes the hub's streams; if it was removed on purpose, start with a "
        "new checkpoint (nothing is doubled: ingest knows every message by its identity)"
    )

    def __init__(self, stream: str) -> None:
        super().__init__(stream, f"there is no stream {stream}")


class StreamClosedError(StreamError):
    """The stream exists, but answers no direct get."""

    hint = "set allow_direct on the stream; `backhaul-hub up` does"

    def __init__(self, stream: str) -> None:
        super().__init__(stream, f"stream {stream} allows no direct get")


class StreamRecreatedError(StreamError):
    """The stream is a new one under an old name; its sequences mean something else now."""

    hint = (
        "read with on_gap=record to note the loss and go on with the new stream from its start, "
        "or with a new checkpoint"
    )

    def __init__(self, stream: str, seq: int, created_then: str, created_now: str) -> None:
        self.seq, self.created_then, self.created_now = seq, created_then, created_now
        super().__init__(
            stream,
            f"stream {stream} was deleted and created again at {created_now}: the checkpoint is "
            f"at sequence {seq} of the one created at {created_then}",
        )


class MessagesGoneError(StreamError):
    """Messages between two sequences, both included, are no longer in the stream."""

    hint = (
        "the stream's limits removed them before they were read; read with on_gap=record to note "
        "the loss and go on (the vehicles send again what the hub's continuity asks for)"
    )

    def __init__(self, stream: str, lo: int, hi: int) -> None:
        self.lo, self.hi = lo, hi
        super().__init__(
            stream, f"stream {stream} no longer has messages {lo} to {hi} ({hi - lo + 1})"
        )


class StreamFullError(StreamError):
    """A stream that refuses new messages has no room."""

    hint = "TWIN_CMD empties itself while `backhaul-hub up` runs, and of all that is 5 minutes old"

    def __init__(self, detail: str) -> None:
        super().__init__("TWIN_CMD", f"the hub has no room: {detail}")


class AlertUnfitError(BackhaulSparkError):
    """An alert holds a value that cannot be sent to the hub; a rule made it so."""

    hint = "mend the rule: device, command and params go into subjects and JSON"

    def __init__(self, alert_id: str, reason: str) -> None:
        self.alert_id, self.reason = alert_id, reason
        super().__init__(f"alert {alert_id}: {reason}")


class TableError(BackhaulSparkError):
    """The tables under a table root."""


class TableMissingError(TableError):
    """A table that the command reads does not exist."""

    _MADE_BY: ClassVar = {
        "rollups": "rollup",
        "rollups_superseded": "rollup",
        "certificates": "completeness",
        "certificates_superseded": "completeness",
        "anomalies": "anomalies",
        "fleet_days": "anomalies",
        "alerts": "twin",
        "twins": "twin",
    }

    def __init__(self, path: str) -> None:
        self.path = path
        command = self._MADE_BY.get(path.rstrip("/").rpartition("/")[2], "ingest")
        self.hint = f"`backhaul-spark {command}` makes it"
        super().__init__(f"there is no table at {path}")


class TableNewerError(TableError):
    """The table has columns that this version knows nothing of."""

    hint = "bring this installation of backhaul up to date; it leaves the table alone until then"

    def __init__(self, path: str, found: int, known: int) -> None:
        self.path, self.found, self.known = path, found, known
        super().__init__(f"{path} has schema version {found}, this backhaul knows {known}")


class NotKeptError(TableError):
    """A question about a time before versions were kept."""

    hint = "`backhaul-spark maintain --superseded-days` says for how long superseded rows are kept"

    def __init__(self, table: str, asked: str, kept_from: str) -> None:
        self.table, self.asked, self.kept_from = table, asked, kept_from
        super().__init__(
            f"what {table} said at {asked} is not known: its former versions are kept from "
            f"{kept_from} on"
        )


class StorageError(TableError):
    """The files of the tables could not be written or read; the text names cause and remedy."""


class TablesBusyError(TableError):
    """Another process writes the same tables."""

    hint = "let the other one finish or end it; one ingest serves all streams of a hub"

    def __init__(self, root: str, detail: str, command: str = "ingest") -> None:
        self.root, self.detail, self.command = root, detail, command
        if command != "ingest":
            self.hint = f"let the other one finish, then run `backhaul-spark {command}` again; one at a time"
        super().__init__(f"the tables at {root} are in use: {detail}")


class TablesApartError(TableError):
    """Tables that are written together are of different moments: one was put back, or made anew, alone."""

    hint = (
        "put all tables of the root back from one copy, and start with a new checkpoint (the old one moved "
        "away or another named by --checkpoint); nothing was written: ingest would double what one lacks"
    )

    def __init__(self, root: str, table: str, has: int, wanted: int) -> None:
        self.root, self.table, self.has, self.wanted = root, table, has, wanted
        super().__init__(
            f"table {table} at {root} is older than those beside it: it was put back alone "
            f"(it has ingests up to {has}, they know of {wanted})"
        )


class TablesBehindError(TableError):
    """The tables have not heard of batches that the checkpoint counts as done; nobody would read them again."""

    hint = (
        "the tables went back (a power cut, a copy put back) or are others: start with a new "
        "checkpoint, the old one moved away or another named by --checkpoint (nothing is doubled: "
        "ingest knows every message by its identity)"
    )

    def __init__(self, root: str, done: int, batch: int) -> None:
        self.root, self.done, self.batch = root, done, batch
        super().__init__(
            f"the checkpoint is at batch {batch}, and the tables at {root} have "
            + (f"none after batch {done}" if done >= 0 else "none of its batches")
        )


class NothingFoundError(TableError):
    """A question without an answer in the tables."""

    def __init__(self, what: str, hint: str = "") -> None:
        self.what, self.hint = what, hint
        super().__init__(f"nothing found: {what}")


class QuestionError(BackhaulSparkError):
    """A question about the past that cannot be answered as it is."""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = message, hint
        super().__init__(message)


class PackageMissingError(BackhaulSparkError):
    """A command needs a Python package that only an extra of this project brings."""

    def __init__(self, package: str, extra: str) -> None:
        self.package, self.extra = package, extra
        self.hint = f"install the extra: pip install 'backhaul[{extra}]'"
        super().__init__(f"the package {package} is not there")


class JavaMissingError(BackhaulSparkError):
    """There is no Java, or one that Spark does not start with."""

    hint = (
        "Spark needs Java 17 or 21. Debian 12 and Ubuntu: apt install openjdk-17-jre-headless;"
        " Debian 13 and Ubuntu: apt install openjdk-21-jre-headless"
    )

    def __init__(self, found: str) -> None:
        self.found = found
        super().__init__(f"Spark did not start: {found}")


class JobFailedError(BackhaulSparkError):
    """A Spark job failed for a reason that no error above names."""

    hint = "run again with --verbose for Spark's own log"

    def __init__(self, cause: str) -> None:
        self.cause = cause
        super().__init__(cause)
