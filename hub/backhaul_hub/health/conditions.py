"""Every condition that the hub can be in, worst and most telling first (docs/health.md). Pure."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from backhaul_codec.assurance.conditions import Kind, Severity
from backhaul_codec.assurance.vehicle_conditions import KINDS as VEHICLE_KINDS

_found: list[Kind] = []


def _declare(
    severity: Severity,
    code: str,
    title: str,
    hint: str,
    after_s: float = 0.0,
    depends_on: tuple[str, ...] = (),
) -> str:
    """Put a condition behind those before it, and return its code."""
    _found.append(Kind(code, severity, title, hint, after_s, depends_on))
    return code


_error, _warning, _info = (
    partial(_declare, each) for each in (Severity.ERROR, Severity.WARNING, Severity.INFO)
)
LINK_DOWN = "link-down"  # of all the last, and what explains many of them

JETSTREAM_SILENT = _error(
    "jetstream-silent",
    "the hub's nats-server does not answer for its streams",
    "look at the server's log; a full disk switches JetStream off: make room, start the server again",
    after_s=10,
)
REGISTRY_OLDER = _error(
    "registry-older",
    "hub.db is an older copy: the servers hold accounts of later, and are told of revocations alone",
    "put the newest hub.db back; else stop the control plane, and: backhaul-hub restore --from-streams",
)
DEVICE_UNKNOWN = _error(
    "device-unknown",
    "the servers have streams of a vehicle that hub.db does not know: it is an older copy",
    "stop the control plane, and: backhaul-hub restore --from-streams; or the vehicle is taken in as it connects",
    after_s=10,
)
PEOPLE_NOT_TOLD = _error(
    "people-not-told",
    "people do not hear of alerts over a channel",
    "mend what is said there, then: backhaul-hub notify test CHANNEL; what waits goes by itself (docs/alerts.md)",
    after_s=30,
)
STANDBY_AWAY = _warning(
    "standby-away",
    "a machine that is to take the control plane over is not heard",
    "start backhaul-hub up there; a name that is no machine's any more goes out of [standby] others in hub.toml",
    after_s=10,
)
STANDBY_NOT_READY = _warning(
    "standby-not-ready",
    "a machine that is to take the control plane over could not, now",
    "it goes on by itself; where it stays, see the log of backhaul-hub there (docs/cluster.md)",
    after_s=30,
)
SHARD_UNFED = _error(
    "shard-unfed",
    "a shard takes nothing in: its UP stream hears nothing of its relay",
    "the control plane sets that up again by itself; if it stays, see the nats-server's log, and restart backhaul-hub",
    after_s=15,
    depends_on=(JETSTREAM_SILENT,),
)
REPLICA_DAMAGED = _error(
    "replica-damaged",
    "a server has lost messages that another one holds: its disk, or its files, were damaged",
    "see its disk, then on its machine: backhaul-hub repair-server NAME --yes (docs/cluster.md)",
    after_s=10,
    depends_on=(JETSTREAM_SILENT,),
)
SERVER_OFF = _error(
    "server-off",
    "a server of the cluster stores nothing: its JetStream is off",
    "a full disk does that, see its log: make room, start that server again, and it copies what it missed",
    after_s=10,
    depends_on=(JETSTREAM_SILENT,),
)
SERVER_CLOCK = _error(
    "server-clock",
    "the clock of a server is not that of the others: it drops messages by its own idea of their age",
    "set that machine's clock right (timedatectl), then see whether it is replica-damaged",
    after_s=10,
    depends_on=(JETSTREAM_SILENT,),
)
STREAM_FULL = _warning(
    "stream-full",
    "a stream is nearly full: the oldest will go, or writes be refused",
    "raise its ..._bytes_max in hub.toml, or see why it is not read",
    after_s=10,
    depends_on=(JETSTREAM_SILENT,),
)
REPLICA_BEHIND = _warning(
    "replica-behind",
    "a replica of a stream is behind, or its server away",
    "look at that server; with one more away nothing could be stored",
    after_s=30,
    depends_on=(JETSTREAM_SILENT,),
)
CONSUMER_LAG = _warning(
    "consumer-lag",
    "a reader is far behind its stream",
    "see that it runs and keeps up, or delete the consumer: nats consumer rm",
    after_s=30,
    depends_on=(JETSTREAM_SILENT,),
)
ACK_PENDING = _warning(
    "ack-pending",
    "a reader takes messages and does not acknowledge them",
    "see what its program waits for",
    after_s=30,
    depends_on=(JETSTREAM_SILENT,),
)
READER_BEHIND = _warning(
    "reader-behind",
    "the control plane is far behind what vehicles have sent",
    "it catches up by itself; if it does not, see its log and the load of this machine",
    after_s=60,
    depends_on=(JETSTREAM_SILENT,),
)
QUARANTINE_GREW = _warning(
    "quarantine-grew",
    "messages came that cannot be read",
    "see their headers in stream QUARANTINE: which device, and why",
)
TWO_MACHINES = _error(
    "two-machines",
    "two machines use the identity of one vehicle: what one sends may hide what the other does",
    "switch one off, and enrol it anew under an id of its own: backhaul-hub enrol NEW-ID, then there "
    "backhaul-agent enrol, and adopt-ledger for what it holds (docs/enrolment.md); gone a day after it was last seen",
)
AGENT_DOWN = _error(
    "agent-down",
    "the vehicle's link is up, and no agent runs on it: what its programs publish is not kept",
    "on the vehicle: systemctl restart backhaul-agent; why it ended: journalctl -u backhaul-agent",
    after_s=120,
    depends_on=(LINK_DOWN,),
)
GAP_OPEN = _error(
    "gap-open",
    "messages are missing below the newest",
    "the vehicle is asked again; if it lasts: backhaul-hub devices, and the agent's log",
    after_s=60,
    depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
)
GAP_OF_ANOTHER = _error(
    "gap-of-another",
    "messages are missing, and two machines have used this identity: the one that is away may have them",
    "bring the other machine online; once sure that none has them: backhaul-hub one-machine DEVICE",
    after_s=60,
    depends_on=(JETSTREAM_SILENT, READER_BEHIND),
)
SOURCE_STALLED = _warning(
    "source-stalled",
    "the vehicle has more, its source says it has none, and nothing comes",
    "it is set up again by itself; if it lasts, restart the vehicle's leaf server",
    after_s=60,
    depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
)
LANE_STALLED = _warning(
    "lane-stalled",
    "the vehicle has more, and nothing comes",
    "look at its link, then at backhaul-agent status on the vehicle",
    after_s=60,
    depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
)
DEVICE_FLOODING = _error(
    "device-flooding",
    "the vehicle sent more than any honest one would, and is kept out for a while",
    "find out what runs there, and revoke it if it is not yours any more; else raise [flood]",
)
FRAMES_EXPAND = _error(
    "frames-expand",
    "the vehicle's small messages hold far more points or text than any honest one's, and it is kept out for a while",
    "backhaul-hub revoke DEVICE if it is not yours any more; else raise expanded_s_max in [flood]",
)
DICTIONARY_MISSING = _error(
    "dictionary-missing",
    "messages are packed against a dictionary that the hub does not have, and wait in UP",
    "the vehicle is asked for it: see that it is connected and its agent runs; else put back a hub.db, or a stream "
    "DICT, that has it: the messages are taken up then, also by ingest. The twin job passes over them: when ingest has them, "
    "backhaul-spark recompute-alerts --device gives their alerts",
    after_s=10,
    depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
)
DICTIONARIES_FULL = _error(
    "dictionaries-full",
    "the vehicle sends more dictionaries than the hub keeps, all in use: the newest is not confirmed",
    "find out what runs there: an agent makes a new one when its nodes change; room comes a week after their last use",
)
VEHICLE_CONDITION = _warning(
    "vehicle-condition",
    "the vehicle says that something is wrong that this hub does not know",
    "backhaul-agent status on the vehicle says what it is; its backhaul is newer than the hub's",
)
MACHINE_CHANGED = _info(
    "machine-changed",
    "the vehicle runs on another machine than before",
    "nothing, where its machine was replaced for good: gone after a day; else see two-machines in "
    "docs/health.md",
)
CERTIFICATE_EXPIRES = _warning(
    "certificate-expires",
    "a certificate of the hub is about to expire, and vehicles will be refused",
    "backhaul-hub tls renew, or tls use for your own; of an authority: tls renew --new-ca",
)
HUB_CLOCK_STEP = _error(
    "hub-clock-step",
    "the clock of the hub's machine was set, and the control plane does not go by it",
    "see timedatectl: set the clock right if it is wrong; if it is right, wait: docs/clocks.md",
)
HUB_CLOCK_DOUBTED = _warning(
    "hub-clock-doubted",
    "the hub tells the vehicle another time than before, and the vehicle does not follow",
    "see that the hub's clock is right (timedatectl); a vehicle follows if it stays: docs/clocks.md",
    depends_on=(LINK_DOWN, HUB_CLOCK_STEP),
)
HEADS_DIFFER = _warning(
    "heads-differ",
    "hub and vehicle do not hold the same state and configuration, and do not come to it",
    "see that the agent runs (backhaul-agent status there); restart it to have both compared again",
    after_s=120,
    depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
)
HEADS_AHEAD = _warning(
    "heads-ahead",
    "state or configuration is stamped in the future: a clock was wrong when it was written",
    "see that the hub's clock is right; the hub's next writes stand above that: docs/clocks.md",
)
AUDIT_BROKEN = _error(
    "audit-broken",
    "the audit log is not as it was written: entries were taken out, or changed",
    "compare it with a backup's: backhaul-hub audit verify says from where on (docs/erase.md)",
)
ERASURE_OWED = _warning(
    "erasure-owed",
    "a vehicle that was erased is not erased everywhere",
    "do what is said there; where there are no tables: backhaul-hub erase VID --tables-done (docs/erase.md)",
    after_s=60,
)
IMPORT_UNFINISHED = _warning(
    "import-unfinished",
    "an import of old logs was ended before all was kept, or its stream has lost some",
    "run the same command again, it goes on: backhaul-hub import DIR --map MAP.toml (--again, where the stream was lost)",
)
HISTORY_SILENT = _warning(
    "history-silent",
    "the server of history does not answer: pages show no past",
    "start it where the tables are: backhaul-spark serve-history; see its log",
    after_s=30,
)
JOB_STILL = _warning(
    "job-still",
    "a job of Spark is behind and stands still: tables and alerts lack what is new",
    "see its log where it runs, and start it again: systemctl restart backhaul-spark-JOB",
)
CLOCK_UNSET = _warning(
    "clock-unset",
    "the vehicle does not know the time",
    "see backhaul-agent status on the vehicle, and docs/clocks.md",
    after_s=60,
    depends_on=(LINK_DOWN,),
)
_warning(
    LINK_DOWN,
    "the vehicle is not connected",
    "nothing, where it is parked or out of reach; else look at its modem and leaf server",
    after_s=300,
)

KINDS = tuple(_found)

# Of these the hub judges by itself, and a vehicle that says so says no more.
_SEEN_HERE = {kind.code for kind in KINDS}
OF_VEHICLES = tuple(
    replace(kind, title=f"on the vehicle: {kind.title}", after_s=0, depends_on=())
    for kind in VEHICLE_KINDS
    if kind.code not in _SEEN_HERE
)
"""What vehicles say of themselves: it has waited its time there already."""
