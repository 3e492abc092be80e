"""Every condition that the hub can be in, worst and most telling first (docs/health.md). Pure."""

from __future__ import annotations

from backhaul_codec.conditions import Kind, Severity

JETSTREAM_SILENT = "jetstream-silent"
STREAM_FULL = "stream-full"
REPLICA_BEHIND = "replica-behind"
CONSUMER_LAG = "consumer-lag"
ACK_PENDING = "ack-pending"
READER_BEHIND = "reader-behind"
QUARANTINE_GREW = "quarantine-grew"
GAP_OPEN = "gap-open"
SOURCE_STALLED = "source-stalled"
LANE_STALLED = "lane-stalled"
CLOCK_UNSET = "clock-unset"
LINK_DOWN = "link-down"
DEVICE_FLOODING = "device-flooding"
CERTIFICATE_EXPIRES = "certificate-expires"

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
        GAP_OPEN,
        _ERROR,
        "messages are missing below the newest",
        "the vehicle is asked again; if it lasts: backhaul-hub devices, and the agent's log",
        after_s=60,
        depends_on=(JETSTREAM_SILENT, LINK_DOWN, READER_BEHIND),
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
        CERTIFICATE_EXPIRES,
        _WARNING,
        "a certificate of the hub is about to expire, and vehicles will be refused",
        "backhaul-hub tls renew, or tls use for your own; of an authority: tls renew --new-ca",
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
