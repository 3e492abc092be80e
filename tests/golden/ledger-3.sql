CREATE TABLE meta (name TEXT PRIMARY KEY, value) WITHOUT ROWID;
CREATE TABLE lanes (
    id INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    next_seq INTEGER NOT NULL DEFAULT 1,
    watermark INTEGER NOT NULL DEFAULT 0,
    confirmed INTEGER NOT NULL DEFAULT 0,
    stream_created TEXT NOT NULL DEFAULT '',
    used_seq INTEGER NOT NULL DEFAULT 0,
    UNIQUE (name, epoch)
);
CREATE TABLE steps (
    lane INTEGER NOT NULL,
    from_seq INTEGER NOT NULL,
    stream_offset INTEGER NOT NULL,
    PRIMARY KEY (lane, from_seq)
) WITHOUT ROWID;
CREATE TABLE messages (
    id INTEGER PRIMARY KEY,
    lane INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    subject TEXT NOT NULL,
    body BLOB NOT NULL,
    value_class INTEGER NOT NULL,
    t_lo INTEGER,
    t_hi INTEGER,
    boot INTEGER NOT NULL DEFAULT 0
);
CREATE UNIQUE INDEX messages_lane_seq ON messages (lane, seq);
CREATE INDEX messages_held ON messages (lane, seq) WHERE boot > 0;
CREATE INDEX messages_class ON messages (value_class);
CREATE INDEX messages_history ON messages (subject, t_lo, t_hi) WHERE t_lo IS NOT NULL;
CREATE TABLE classes (
    value_class INTEGER PRIMARY KEY,
    messages INTEGER NOT NULL DEFAULT 0,
    bytes INTEGER NOT NULL DEFAULT 0
);
INSERT INTO classes (value_class) VALUES (0), (1), (2), (3), (4);
CREATE TRIGGER messages_in AFTER INSERT ON messages BEGIN
    UPDATE classes SET messages = messages + 1, bytes = bytes + (length(NEW.subject) + coalesce(length(NEW.body), 0))
    WHERE value_class = NEW.value_class;
END;
CREATE TRIGGER messages_changed AFTER UPDATE OF body ON messages BEGIN
    UPDATE classes SET bytes = bytes + (length(NEW.subject) + coalesce(length(NEW.body), 0)) - (length(OLD.subject) + coalesce(length(OLD.body), 0))
    WHERE value_class = NEW.value_class;
END;
CREATE TRIGGER messages_out AFTER DELETE ON messages BEGIN
    UPDATE classes SET messages = messages - 1, bytes = bytes - (length(OLD.subject) + coalesce(length(OLD.body), 0))
    WHERE value_class = OLD.value_class;
END;
CREATE TABLE staged (
    id INTEGER PRIMARY KEY,
    node TEXT NOT NULL,
    points INTEGER NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    boot INTEGER NOT NULL DEFAULT 0,
    clock INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE boots (
    number INTEGER PRIMARY KEY,
    boot TEXT NOT NULL UNIQUE,
    provisional_ns INTEGER NOT NULL,
    anchor_ns INTEGER,
    error_ns INTEGER,
    at_ns INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE quarantined (
    id INTEGER PRIMARY KEY,
    lane TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    subject TEXT NOT NULL,
    body BLOB,
    reason TEXT NOT NULL,
    time_ns INTEGER NOT NULL
);
CREATE UNIQUE INDEX quarantined_lane_seq ON quarantined (lane, epoch, seq) WHERE seq > 0;
CREATE TABLE heads (
    parent TEXT NOT NULL,
    node TEXT NOT NULL,
    type TEXT NOT NULL,
    key TEXT NOT NULL,
    crc INTEGER NOT NULL,
    body BLOB NOT NULL,
    PRIMARY KEY (parent, node, type, key)
) WITHOUT ROWID;
CREATE TABLE evicted (
    lane INTEGER NOT NULL,
    lo INTEGER NOT NULL,
    hi INTEGER NOT NULL,
    reason TEXT NOT NULL,
    PRIMARY KEY (lane, lo)
) WITHOUT ROWID;
CREATE TABLE ages (time_ns INTEGER PRIMARY KEY, next_seqs TEXT NOT NULL);

CREATE TABLE commands (
    number INTEGER PRIMARY KEY,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    params BLOB NOT NULL,
    sent_ns INTEGER NOT NULL,
    deadline_ns INTEGER NOT NULL,
    state TEXT NOT NULL DEFAULT 'waiting',
    runs INTEGER NOT NULL DEFAULT 0,
    ended_ns INTEGER NOT NULL DEFAULT 0,
    said BLOB NOT NULL DEFAULT x'',
    owed INTEGER NOT NULL DEFAULT 0
);
CREATE INDEX commands_open ON commands (number) WHERE state IN ('waiting', 'running') OR owed > 0;

PRAGMA application_id = 1112229964;
PRAGMA user_version = 3;

INSERT INTO meta VALUES ('device', 'VID-001'), ('epoch', 43);
INSERT INTO lanes VALUES (1, 'live', 42, 2, 1, 1, '2026-01-31T10:00:00Z', 1);
INSERT INTO lanes VALUES (2, 'bulk', 42, 4, 1, 1, '2026-01-31T10:00:00Z', 3);
INSERT INTO lanes VALUES (3, 'live', 43, 5, 0, 0, '2026-01-31T10:00:00Z', 2);
INSERT INTO lanes VALUES (4, 'bulk', 43, 3, 0, 0, '2026-01-31T10:00:00Z', 2);
INSERT INTO boots VALUES (1, 'aaaa-bbbb', 1000, NULL, NULL, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (2, 2, 'f.battery', x'01012a00000002000000000000007c0000006ff254a75bc3c0ca282d3e7dce3f332d06062629eb59a718985d18191819585c1918189998595b928bf39353cbf2734a8a5393f34bf34a52f2f24b52d97d18199880ca98191858d818381731384ab23932b0b524a4152426672b18252470344bcaef95e49f2eddc00006ec5c8d69875b8ad2538b78d393124b4a528b2a01', 1, 1700000000000000000, 1700000002000000000, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (2, 3, 'f.battery', x'01002a00000003000000000000007c0000006ff254a7ac0005011b17979cfe362a0000021a3b9aca0003440100010004450000010203058463736f6365766f6c747365636f756e74646e6f7465074c01000201000103000004060009a2004119064100068460667061636b203260600883191fbd190f971b80000000000000070a8166c384726765720d6762617474657279', 1, 1700000000000000000, 1700000002000000000, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (3, 1, 'e.quarantined', x'11002b00000001000000000000001a0000003878e166821b17979cfe362a0000d901064c7b22706f696e7473223a337d', 4, NULL, NULL, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (3, 2, 'p.battery.limit.upper', x'11002b0000000200000000000000180000000f52f0e2841b17979cfe362a0000fb40542000000000000163687562', 3, 1700000000000000000, 1700000000000000000, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (3, 3, 'p.battery.limit.upper', x'11002b0000000300000000000000180000000f52f0e2841b17979cfe362a0000fb40542000000000000163687562', 3, 1700000000000000000, 1700000000000000000, 1);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (3, 4, 'e.quarantined', x'11002b00000004000000000000001a0000003878e166821b17979cfe362a0000d901064c7b22706f696e7473223a337d', 4, NULL, NULL, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (4, 1, 'f.battery', x'01012b00000001000000000000007c0000006ff254a75bc3c0ca282d3e7dce3f332d06062629eb59a718985d18191819585c1918189998595b928bf39353cbf2734a8a5393f34bf34a52f2f24b52d97d18199880ca98191858d818381731384ab23932b0b524a4152426672b18252470344bcaef95e49f2eddc00006ec5c8d69875b8ad2538b78d393124b4a528b2a01', 1, 1700000000000000000, 1700000002000000000, 0);
INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES (4, 2, 'f.battery', x'01012b000000020000000000000031000000175abc3b5bcdc0c8282d3e7dce3f332d060626466607164706d6c6e4e2fc647667460626ce051c8d92f27b79d393124b4a528b2af99800', 1, 1700000000000000000, 1700000000000000000, 0);
INSERT INTO staged VALUES (1, 'battery', 2, 3238168774, x'9296a3736f63a0cf17979cfe362a0000cb405450000000000000a096a3736f63a0cf17979cfe71c4ca00cb405460000000000000a0', 0, 0);
