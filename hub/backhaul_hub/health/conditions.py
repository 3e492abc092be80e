"""Every condition that the hub can be in, worst and most telling first (docs/health.md). Pure."""

from __future__ import annotations

from dataclasses import replace

from backhaul_codec.assurance.conditions import Kind, Severity
from backhaul_codec.assurance.vehicle_conditions import KINDS as VEHICLE_KINDS

JETSTREAM_SILENT = "jetstream-silent"
REGISTRY_OLDER = "registry-older"
DEVICE_UNKNOWN = "device-unknown"
SHARD_UNFED = "shard-unfed"
STREAM_FULL = "stream-full"
REPLICA_BEHIND = "replica-behind"
REPLICA_DAMAGED = "replica-damaged"
SERVER_OFF = "server-off"
SERVER_CLOCK = "server-clock"
CONSUMER_LAG = "consumer-lag"
ACK_PENDING = "ack-pending"
READER_BEHIND = "reader-behind"
QUARANTINE_GREW = "quarantine-grew"
GAP_OPEN = "gap-open"
GAP_OF_ANOTHER = "gap-of-another"
SOURCE_STALLED = "source-stalled"
LANE_STALLED = "lane-stalled"
CLOCK_UNSET = "clock-unset"
HUB_CLOCK_STEP = "hub-clock-step"
HUB_CLOCK_DOUBTED = "hub-clock-doubted"
HEADS_DIFFER = "heads-differ"
HEADS_AHEAD = "heads-ahead"
LINK_DOWN = "link-down"
DEVICE_FLOODING = "device-flooding"
FRAMES_EXPAND = "frames-expand"
DICTIONARY_MISSING = "dictionary-missing"
DICTIONARIES_FULL = "dictionaries-full"
AGENT_DOWN = "agent-down"
VEHICLE_CONDITION = "vehicle-condition"
TWO_MACHINES = "two-machines"
MACHINE_CHANGED = "machine-changed"
CERTIFICATE_EXPIRES = "certificate-expires"
IMPORT_UNFINISHED = "import-unfinished"
PEOPLE_NOT_TOLD = "people-not-told"
AUDIT_BROKEN = "audit-broken"
ERASURE_OWED = "erasure-owed"
HISTORY_SILENT = "history-silent"
JOB_STILL = "job-still"
STANDBY_AWAY = "standby-away"
STANDBY_NOT_READY = "standby-not-ready"

_ERROR, _WARNING = Severity.ERROR, Severity.WARNING

KINDS = (
    Kind(
        JETSTREAM_SILENT,
        _ERROR,
        "the hub's nats-server does not answer for its streams",
        "look at the server's log; a full disk switches JetStream off: make room, start the server again",
        after_s=10,
    ),
    Kind(
        REGISTRY_OLDER,
        _ERROR,
        "hub.db is an older copy: the servers hold accounts of later, and are told of revocations alone",
        "put the newest hub.db back; else stop the control plane, and: backhaul-hub restore --from-streams",
    ),
    Kind(
        DEVICE_UNKNOWN,
        _ERROR,
        "the servers have streams of a vehicle that hub.db does not know: it is an older copy",
        "stop the control plane, and: backhaul-hub restore --from-streams; or the vehicle is taken in as it connects",
        after_s=10,
    ),
    Kind(
        PEOPLE_NOT_TOLD,
        _ERROR,
        "people do not hear of alerts over a channel",
        "mend what is said there, then: backhaul-hub notify test CHANNEL; what waits goes by itself (docs/alerts.md)",
        after_s=30,
    ),
    Kind(
        STANDBY_AWAY,
        _WARNING,
        "a machine that is to take the control plane over is not heard",
        "start backhaul-hub up there; a name that is no machine's any more goes out of [standby] others in hub.toml",
        after_s=10,
    ),
    Kind(
        STANDBY_NOT_READY,
        _WARNING,
        "a machine that is to take the control plane over could not, now",
        "it goes on by itself; where it stays, see the log of backhaul-hub there (docs/cluster.md)",
        after_s=30,
    ),
    Kind(
        SHARD_UNFED,
        _ERROR,
        "a shard takes nothing in: its UP stream hears nothing of its relay",
        "the control plane sets that up again by itself; if it stays, see the nats-server's log, and restart backhaul-hub",
        after_s=15,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        REPLICA_DAMAGED,
        _ERROR,
        "a server has lost messages that another one holds: its disk, or its files, were damaged",
        "if no other server is named: stop it, move its jetstream/ aside, start it, and it copies all anew (docs/cluster.md)",
        after_s=10,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        SERVER_OFF,
        _ERROR,
        "a server of the cluster stores nothing: its JetStream is off",
        "a full disk does that, see its log: make room, start that server again, and it copies what it missed",
        after_s=10,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        SERVER_CLOCK,
        _ERROR,
        "the clock of a server is not that of the others: it drops messages by its own idea of their age",
        "set that machine's clock right (timedatectl), then see whether it is replica-damaged",
        after_s=10,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        STREAM_FULL,
        _WARNING,
        "a stream is nearly full: the oldest will go, or writes be refused",
        "raise its ..._bytes_max in hub.toml, or see why it is not read",
        after_s=10,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        REPLICA_BEHIND,
        _WARNING,
        "a replica of a stream is behind, or its server away",
        "look at that server; with one more away nothing could be stored",
        after_s=30,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        CONSUMER_LAG,
        _WARNING,
        "a reader is far behind its stream",
        "see that it runs and keeps up, or delete the consumer: nats consumer rm",
        after_s=30,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        ACK_PENDING,
        _WARNING,
        "a reader takes messages and does not acknowledge them",
        "see what its program waits for",
        after_s=30,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        READER_BEHIND,
        _WARNING,
        "the control plane is far behind what vehicles have sent",
        "it catches up by itself; if it does not, see its log and the load of this machine",
        after_s=60,
        depends_on=(JETSTREAM_SILENT,),
    ),
    Kind(
        QUARANTINE_GREW,
        _WARNING,
        "messages came that cannot be read",
        "see their headers in stream QUARANTINE: which device, and why",
    ),
    Kind(
        TWO_MACHINES,
        _ERROR,
        "two machines use the identity of one vehicle: what one sends may hide what the other does",
        "switch one off, and enrol it anew under an id of its own: backhaul-hub enrol NEW-ID, then there "
        "backhaul-agent enrol, and adopt-ledger for what it holds (docs/enrolment.md); gone a day after it was last seen",
    ),
    Kind(
        AGENT_DOWN,
        _ERROR,
        "the vehicle's link is up, and no agent runs on it: what its programs publish is not kept",
        "on the vehicle: systemctl restart backhaul-agent; why it ended: journalctl -u backhaul-agent",
        after_s=120,
        depends_on=(LINK_DOWN,),
    ),
    Kind(
        GAP_OPEN,
        _ERROR,
        "messages are missing below the newest",
        "the vehicle is asked again; if it lasts: backhaul-hub devices, and the agent's log",
        after_s=60,
        depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
    ),
    Kind(
        GAP_OF_ANOTHER,
        _ERROR,
        "messages are missing, and two machines have used this identity: the one that is away may have them",
        "bring the other machine online; once sure that none has them: backhaul-hub one-machine DEVICE",
        after_s=60,
        depends_on=(JETSTREAM_SILENT, READER_BEHIND),
    ),
    Kind(
        SOURCE_STALLED,
        _WARNING,
        "the vehicle has more, its source says it has none, and nothing comes",
        "it is set up again by itself; if it lasts, restart the vehicle's leaf server",
        after_s=60,
        depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
    ),
    Kind(
        LANE_STALLED,
        _WARNING,
        "the vehicle has more, and nothing comes",
        "look at its link, then at backhaul-agent status on the vehicle",
        after_s=60,
        depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
    ),
    Kind(
        DEVICE_FLOODING,
        _ERROR,
        "the vehicle sent more than any honest one would, and is kept out for a while",
        "find out what runs there, and revoke it if it is not yours any more; else raise [flood]",
    ),
    Kind(
        FRAMES_EXPAND,
        _ERROR,
        "the vehicle's small messages hold far more points or text than any honest one's, and it is kept out for a while",
        "backhaul-hub revoke DEVICE if it is not yours any more; else raise expanded_s_max in [flood]",
    ),
    Kind(
        DICTIONARY_MISSING,
        _ERROR,
        "messages are packed against a dictionary that the hub does not have, and wait in UP",
        "the vehicle is asked for it: see that it is connected and its agent runs; else put back a hub.db, or a stream "
        "DICT, that has it: the messages are taken up then",
        after_s=10,
        depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
    ),
    Kind(
        DICTIONARIES_FULL,
        _ERROR,
        "the vehicle sends more dictionaries than the hub keeps, all in use: the newest is not confirmed",
        "find out what runs there: an agent makes a new one when its nodes change; room comes a week after their last use",
    ),
    Kind(
        VEHICLE_CONDITION,
        _WARNING,
        "the vehicle says that something is wrong that this hub does not know",
        "backhaul-agent status on the vehicle says what it is; its backhaul is newer than the hub's",
    ),
    Kind(
        MACHINE_CHANGED,
        Severity.INFO,
        "the vehicle runs on another machine than before",
        "nothing, where its machine was replaced for good: gone after a day; else see two-machines in "
        "docs/health.md",
    ),
    Kind(
        CERTIFICATE_EXPIRES,
        _WARNING,
        "a certificate of the hub is about to expire, and vehicles will be refused",
        "backhaul-hub tls renew, or tls use for your own; of an authority: tls renew --new-ca",
    ),
    Kind(
        HUB_CLOCK_STEP,
        _ERROR,
        "the clock of the hub's machine was set, and the control plane does not go by it",
        "see timedatectl: set the clock right if it is wrong; if it is right, wait: docs/clocks.md",
    ),
    Kind(
        HUB_CLOCK_DOUBTED,
        _WARNING,
        "the hub tells the vehicle another time than before, and the vehicle does not follow",
        "see that the hub's clock is right (timedatectl); a vehicle follows if it stays: docs/clocks.md",
        depends_on=(LINK_DOWN, HUB_CLOCK_STEP),
    ),
    Kind(
        HEADS_DIFFER,
        _WARNING,
        "hub and vehicle do not hold the same state and configuration, and do not come to it",
        "see that the agent runs (backhaul-agent status there); restart it to have both compared again",
        after_s=120,
        depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
    ),
    Kind(
        HEADS_AHEAD,
        _WARNING,
        "state or configuration is stamped in the future: a clock was wrong when it was written",
        "see that the hub's clock is right; what is written from now on stands above it: docs/clocks.md",
    ),
    Kind(
        AUDIT_BROKEN,
        _ERROR,
        "the audit log is not as it was written: entries were taken out, or changed",
        "compare it with a backup's: backhaul-hub audit verify says from where on (docs/erase.md)",
    ),
    Kind(
        ERASURE_OWED,
        _WARNING,
        "a vehicle that was erased is not erased everywhere",
        "do what is said there; where there are no tables: backhaul-hub erase VID --tables-done (docs/erase.md)",
        after_s=60,
    ),
    Kind(
        IMPORT_UNFINISHED,
        _WARNING,
        "an import of old logs was ended before all was kept, or its stream has lost some",
        "run the same command again, it goes on: backhaul-hub import DIR --map MAP.toml (--again, where the stream was lost)",
    ),
    Kind(
        HISTORY_SILENT,
        _WARNING,
        "the server of history does not answer: pages show no past",
        "start it where the tables are: backhaul-spark serve-history; see its log",
        after_s=30,
    ),
    Kind(
        JOB_STILL,
        _WARNING,
        "a job of Spark is behind and stands still: tables and alerts lack what is new",
        "see its log where it runs, and start it again: systemctl restart backhaul-spark-JOB",
    ),
    Kind(
        CLOCK_UNSET,
        _WARNING,
        "the vehicle does not know the time",
        "see backhaul-agent status on the vehicle, and docs/clocks.md",
        after_s=60,
        depends_on=(LINK_DOWN,),
    ),
    Kind(
        LINK_DOWN,
        _WARNING,
        "the vehicle is not connected",
        "nothing, where it is parked or out of reach; else look at its modem and leaf server",
        after_s=300,
    ),
)

# Of these the hub judges by itself, and a vehicle that says so says no more.
_SEEN_HERE = {kind.code for kind in KINDS}
OF_VEHICLES = tuple(
    replace(kind, title=f"on the vehicle: {kind.title}", after_s=0, depends_on=())
    for kind in VEHICLE_KINDS
    if kind.code not in _SEEN_HERE
)
"""What vehicles say of themselves: it has waited its time there already."""
