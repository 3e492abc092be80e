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
