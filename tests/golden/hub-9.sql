CREATE TABLE device (
    id TEXT PRIMARY KEY,
    token TEXT NOT NULL UNIQUE,
    public_key TEXT NOT NULL,
    added_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE lane (
    device TEXT NOT NULL,
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    held TEXT NOT NULL,
    aged TEXT NOT NULL,
    seen TEXT,
    receipts TEXT NOT NULL,
    said INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    repeats INTEGER NOT NULL,
    body_bytes INTEGER NOT NULL,
    last_seen_ns INTEGER NOT NULL,
    PRIMARY KEY (device, lane, epoch)
) STRICT, WITHOUT ROWID;
CREATE TABLE position (
    stream TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    seq INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    stored_ns INTEGER NOT NULL,
    first_seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE block (
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    high_ns INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    grains TEXT NOT NULL,
    PRIMARY KEY (stream, number)
) STRICT, WITHOUT ROWID;
CREATE TABLE block_lane (
    stream TEXT NOT NULL,
    number INTEGER NOT NULL,
    device TEXT NOT NULL,
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    ranges TEXT NOT NULL,
    PRIMARY KEY (stream, number, device, lane, epoch)
) STRICT, WITHOUT ROWID;
CREATE INDEX block_of_lane ON block_lane (device, lane, epoch);
CREATE TABLE mark (
    device TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    hour INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    lanes TEXT NOT NULL,
    why TEXT NOT NULL,
    PRIMARY KEY (device, epoch, seq)
) STRICT, WITHOUT ROWID;
CREATE TABLE ended_epoch (
    device TEXT NOT NULL,
    old INTEGER NOT NULL,
    new INTEGER NOT NULL,
    time_ns INTEGER NOT NULL,
    why TEXT NOT NULL,
    lanes TEXT NOT NULL,
    stored_ns INTEGER NOT NULL,
    PRIMARY KEY (device, old)
) STRICT, WITHOUT ROWID;
CREATE TABLE vehicle_clock (
    device TEXT PRIMARY KEY,
    time_ns INTEGER NOT NULL,
    quality TEXT NOT NULL,
    offset_ns INTEGER NOT NULL,
    error_ns INTEGER,
    boot TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE device_node (
    device TEXT NOT NULL,
    node TEXT NOT NULL,
    leaving INTEGER NOT NULL,
    PRIMARY KEY (device, node)
) STRICT, WITHOUT ROWID;

CREATE TABLE head (
    device TEXT NOT NULL,
    parent TEXT NOT NULL,
    node TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT NOT NULL,
    point BLOB NOT NULL,
    heard_ns INTEGER NOT NULL,
    PRIMARY KEY (device, parent, node, type, key)
) STRICT;

CREATE TABLE conflict (
    id INTEGER PRIMARY KEY,
    device TEXT NOT NULL,
    parent TEXT NOT NULL,
    node TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT NOT NULL,
    winner BLOB NOT NULL,
    winner_clock TEXT NOT NULL,
    loser BLOB NOT NULL,
    loser_clock TEXT NOT NULL,
    noticed_ns INTEGER NOT NULL,
    resolved_ns INTEGER NOT NULL,
    resolution TEXT NOT NULL,
    resolved_by TEXT NOT NULL
) STRICT;
CREATE TABLE conflicts_dropped (
    only INTEGER PRIMARY KEY CHECK (only = 0),
    resolved INTEGER NOT NULL,
    unresolved INTEGER NOT NULL
) STRICT;

CREATE TABLE outbox (
    device TEXT NOT NULL,
    subject TEXT NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (device, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE said (
    device TEXT PRIMARY KEY,
    words TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE command (
    number INTEGER PRIMARY KEY,
    device TEXT NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    params TEXT NOT NULL,
    who TEXT NOT NULL,
    deadline_ns INTEGER NOT NULL,
    queued_ns INTEGER NOT NULL,
    state TEXT NOT NULL,
    sent_ns INTEGER NOT NULL,
    accepted_ns INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    said TEXT NOT NULL,
    rank INTEGER NOT NULL,
    UNIQUE (device, id)
) STRICT;
CREATE INDEX command_open ON command (number) WHERE ended_ns = 0;


CREATE TABLE shadow (
    device TEXT PRIMARY KEY,
    state TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE enrolment (
    id TEXT PRIMARY KEY,
    device TEXT NOT NULL,
    device_token TEXT NOT NULL UNIQUE,
    made_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    settings TEXT NOT NULL,
    public_key TEXT NOT NULL,
    used_ns INTEGER NOT NULL,
    voided_ns INTEGER NOT NULL,
    why_voided TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX enrolment_of_device ON enrolment (device);

CREATE TABLE revocation (
    public_key TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    revoked_ns INTEGER NOT NULL,
    expires_s INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE person (
    name TEXT PRIMARY KEY,
    group_address TEXT NOT NULL,
    may TEXT NOT NULL,
    public_key TEXT NOT NULL UNIQUE,
    added_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;


CREATE TABLE rotation (
    device TEXT PRIMARY KEY,
    id TEXT NOT NULL,
    state TEXT NOT NULL,
    asked_ns INTEGER NOT NULL,
    public_key TEXT NOT NULL,
    old_key TEXT NOT NULL,
    changed_ns INTEGER NOT NULL,
    why TEXT NOT NULL,
    said TEXT NOT NULL
) STRICT, WITHOUT ROWID;
PRAGMA user_version = 9;

INSERT INTO device VALUES ('VID-001', '0123456789abcdef01234567', 'UABC', 5);
INSERT INTO lane VALUES ('VID-001', 'bulk', 42, '[[1,5],[9,9]]', '[[1,2]]', '[[1,5],[8,9]]', '[[6,6,"evicted"]]', 11, 7, 2, 600, 123);
INSERT INTO lane VALUES ('VID-001', 'live', 42, '[[1,4]]', '[]', '[[1,4]]', '[]', 4, 7, 2, 600, 123);
INSERT INTO position VALUES ('UP_00', '2026-01-31T10:00:00Z', 9, 1, 77, 3);
