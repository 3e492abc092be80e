"""The tables of hub.db, for each room that keeps rows in them. The meaning of a column stands beside the room's code."""

from __future__ import annotations

LANE_LOG = """
CREATE TABLE lane_log (
    number INTEGER PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;
"""
HEADS = """
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
"""
CONFLICTS = """
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
"""
OUTBOX = """
CREATE TABLE outbox (
    device TEXT NOT NULL,
    subject TEXT NOT NULL,
    turn INTEGER NOT NULL,
    PRIMARY KEY (device, subject)
) STRICT, WITHOUT ROWID;
"""
DEVICE_KNOWLEDGE = """
CREATE TABLE said (
    device TEXT PRIMARY KEY,
    words TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
COMMANDS = """
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
    said_by TEXT NOT NULL,
    code TEXT NOT NULL,
    error TEXT NOT NULL,
    result TEXT NOT NULL,
    runs INTEGER NOT NULL,
    doubt INTEGER NOT NULL,
    rank INTEGER NOT NULL,
    UNIQUE (device, id)
) STRICT;
CREATE INDEX command_open ON command (number) WHERE ended_ns = 0;
"""
SHADOWS = """
CREATE TABLE shadow (
    device TEXT PRIMARY KEY,
    state TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
ENROLMENT = """
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
"""
REVOCATIONS = """
CREATE TABLE revocation (
    public_key TEXT PRIMARY KEY,
    account TEXT NOT NULL,
    name TEXT NOT NULL,
    revoked_ns INTEGER NOT NULL,
    expires_s INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
PEOPLE = """
CREATE TABLE person (
    name TEXT PRIMARY KEY,
    group_address TEXT NOT NULL,
    may TEXT NOT NULL,
    public_key TEXT NOT NULL UNIQUE,
    added_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
KEY_ROTATIONS = """
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
"""
GENERATIONS = """
CREATE TABLE account_generation (
    account TEXT PRIMARY KEY,
    generation INTEGER NOT NULL,
    digest TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
VEHICLES = """
CREATE TABLE vehicle (
    device TEXT PRIMARY KEY,
    told_ns INTEGER NOT NULL,
    report TEXT NOT NULL,
    identity TEXT NOT NULL
) STRICT, WITHOUT ROWID;
"""
DICTIONARIES = """
CREATE TABLE dictionary (
    device TEXT NOT NULL,
    digest TEXT NOT NULL,
    body BLOB NOT NULL,
    kept_ns INTEGER NOT NULL,
    used_ns INTEGER NOT NULL,
    PRIMARY KEY (device, digest)
) STRICT;
CREATE TABLE awaited_dictionary (
    device TEXT NOT NULL,
    digest TEXT NOT NULL,
    stream TEXT NOT NULL,
    low INTEGER NOT NULL,
    high INTEGER NOT NULL,
    messages INTEGER NOT NULL,
    since_ns INTEGER NOT NULL,
    PRIMARY KEY (device, digest, stream)
) STRICT, WITHOUT ROWID;
"""
IMPORTS = """
CREATE TABLE import_source (
    source TEXT PRIMARY KEY,
    device TEXT NOT NULL,
    file TEXT NOT NULL,
    total INTEGER NOT NULL,
    rows INTEGER NOT NULL,
    digest TEXT NOT NULL,
    points INTEGER NOT NULL,
    going INTEGER NOT NULL,
    going_digest TEXT NOT NULL,
    going_epoch INTEGER NOT NULL,
    going_hours TEXT NOT NULL,
    updated_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE import_epoch (
    device TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    stretch TEXT NOT NULL,
    PRIMARY KEY (device, epoch)
) STRICT, WITHOUT ROWID;
CREATE TABLE import_stream (
    stream TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE import_hour (
    device TEXT NOT NULL,
    hour INTEGER NOT NULL,
    points INTEGER NOT NULL,
    PRIMARY KEY (device, hour)
) STRICT, WITHOUT ROWID;
"""
ALERTS = """
CREATE TABLE alert (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    device TEXT NOT NULL,
    name TEXT NOT NULL,
    about TEXT NOT NULL,
    severity TEXT NOT NULL,
    text TEXT NOT NULL,
    hint TEXT NOT NULL,
    since_ns INTEGER NOT NULL,
    heard_ns INTEGER NOT NULL,
    seen_ns INTEGER NOT NULL,
    late INTEGER NOT NULL,
    ended_ns INTEGER NOT NULL,
    ended_why TEXT NOT NULL,
    acked_ns INTEGER NOT NULL,
    acked_by TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX alert_by_end ON alert (ended_ns, device);
CREATE TABLE alert_told (
    alert TEXT NOT NULL,
    channel TEXT NOT NULL,
    count INTEGER NOT NULL,
    last_ns INTEGER NOT NULL,
    PRIMARY KEY (alert, channel)
) STRICT, WITHOUT ROWID;
CREATE TABLE alert_silence (
    id INTEGER PRIMARY KEY,
    place TEXT NOT NULL,
    name TEXT NOT NULL,
    from_ns INTEGER NOT NULL,
    until_ns INTEGER NOT NULL,
    who TEXT NOT NULL,
    why TEXT NOT NULL,
    ended_ns INTEGER NOT NULL,
    ended_by TEXT NOT NULL
) STRICT;
CREATE TABLE alert_notice (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    channel TEXT NOT NULL,
    kind TEXT NOT NULL,
    alert TEXT NOT NULL,
    made_ns INTEGER NOT NULL,
    message TEXT NOT NULL,
    sent_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX alert_notice_waiting ON alert_notice (number) WHERE sent_ns = 0;
CREATE TABLE alert_position (
    stream TEXT PRIMARY KEY,
    created TEXT NOT NULL,
    seq INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
PAGE_LOGINS = """
CREATE TABLE page_link (
    hash TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    made_ns INTEGER NOT NULL,
    expires_ns INTEGER NOT NULL,
    used_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE page_session (
    public_key TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    made_ns INTEGER NOT NULL,
    expires_s INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX page_session_of ON page_session (name);
"""

ERASURES = """
CREATE TABLE erasure (
    device TEXT PRIMARY KEY,
    asked_ns INTEGER NOT NULL,
    first_ns INTEGER NOT NULL,
    state TEXT NOT NULL,
    done_ns INTEGER NOT NULL,
    tables_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE TABLE erased_person (
    hash TEXT PRIMARY KEY,
    pseudonym TEXT NOT NULL,
    asked_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
"""
AUDIT = """
CREATE TABLE audit_head (
    only INTEGER PRIMARY KEY CHECK (only = 0),
    seq INTEGER NOT NULL,
    digest TEXT NOT NULL
) STRICT;
CREATE TABLE audit_pending (
    number INTEGER PRIMARY KEY,
    at_ns INTEGER NOT NULL,
    who TEXT NOT NULL,
    what TEXT NOT NULL,
    about TEXT NOT NULL,
    detail TEXT NOT NULL,
    refused TEXT NOT NULL,
    person INTEGER NOT NULL
) STRICT;
CREATE TABLE audit_name (
    name TEXT PRIMARY KEY,
    pseudonym TEXT NOT NULL UNIQUE
) STRICT, WITHOUT ROWID;
"""
