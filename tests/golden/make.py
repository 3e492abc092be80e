"""Write the golden files: `python -m tests.golden.make`. What is there already is left as it is.

A golden file is written once, when its version is new, and never again: what it is good for is that it does
not follow the code. `schemas/` has the tables of a ledger and a hub.db as they were written by commit
aa7919e; the databases are kept as text, so that a change of one can be read. What a whole fleet wrote
before issue 16 is another matter: make_world.py.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from dataclasses import replace
from pathlib import Path

import msgspec

from backhaul_agent.commit.framer import pack
from backhaul_codec import (
    Opaque,
    Point,
    chain,
    decode,
    encode_frame,
    encode_point,
    hash_of,
    peek,
    restamp,
)
from backhaul_codec.points import JSON
from backhaul_codec.protocol.push import beside_subject, push_subject, terse
from backhaul_codec.subjects import dictionary_subject
from backhaul_codec.wire.dictionaries import digest_of, encode_dictionary, pack_with
from backhaul_codec.wire.envelope import NO_LINK, unseal
from backhaul_codec.wire.messages import encode_bundle

from .clock_words import spoken

HERE = Path(__file__).parent
NOON = 1_700_000_000_000_000_000
FRAME = [
    Point("battery", "soc", NOON, 81.25),
    Point("battery", "soc", NOON + 10**9, 81.5),
    Point("battery", "volts", NOON + 10**9, 399.1, key="pack 2"),
    Point("battery", "count", NOON + 2 * 10**9, 2**63 + 7),
    Point("battery", "note", NOON + 2 * 10**9, "Ärger"),
]
STATE = Point("battery", "limit", NOON, 80.5, key="upper", tombstone=1, origin="hub")
EVENT = Point("", "quarantined", NOON, Opaque(JSON, b'{"points":3}'))
BUNDLE = [*FRAME, Point("gps", "lat", NOON, 47.5), Point("gps", "fix", NOON + 10**9, 1)]
WATERMARKS = (
    b'{"epoch":1,"seq":0,"hash":""}',
    b'{"epoch":4294967295,"seq":1099511627775,"hash":"00ff10203040"}',
)
# By name: its subject and the message of version 1.
MESSAGES = {
    "frame": ("f.battery", encode_frame(FRAME, epoch=0, seq=0)),
    "frame, not compressed": ("f.battery", encode_frame(FRAME, epoch=0, seq=0, compression="none")),
    "frame, clock unset": ("f.battery", encode_frame(FRAME[:1], epoch=0, seq=0, clock=2)),
    "point": ("p.battery.limit.upper", encode_point(STATE, epoch=0, seq=0)),
    "event": ("e.quarantined", encode_point(EVENT, epoch=0, seq=0)),
}


def main() -> None:
    """Write what is missing."""
    for name, content in {
        "messages-1.json": _messages(1),
        "messages-2.json": _messages(2),
        "packed-2.json": _packed(),
        "beside-1.json": _beside(),
        "clock-1.json": json.dumps(asyncio.run(spoken()), indent=1) + "\n",
        "ledger-3.sql": _ledger(),
        "hub-9.sql": _hub(),
    }.items():
        if not (HERE / name).exists():
            (HERE / name).write_text(content)


def plain(point: Point) -> list[object]:
    """Return a point as a golden file has it: opaque bytes by their dtype and in hex, times in ns."""
    value = point.value
    said = [value.dtype, value.data.hex()] if isinstance(value, Opaque) else value
    return [
        point.node, point.type, point.key, point.time, said, point.tombstone, point.origin,
    ]  # fmt: skip


def _messages(version: int) -> str:
    link, found = NO_LINK, []
    for seq, (name, (subject, message)) in enumerate(MESSAGES.items(), 2**32 - 2):
        if version == 1:
            stamped = restamp(message, epoch=2**32 - 1, seq=seq)
        else:
            stamped = chain(message, epoch=2**32 - 1, seq=seq, link=link)
        link, header = hash_of(subject, stamped), peek(stamped)
        found.append(
            {
                "name": name,
                "subject": subject,
                "message": stamped.hex(),
                "kind": header.kind.name,
                "epoch": header.epoch,
                "seq": header.seq,
                "raw_len": header.raw_len,
                "link": header.link.hex(),
                "hash": link.hex(),
                "points": [plain(point) for point in decode(stamped).points],
            }
        )
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _packed() -> str:
    """Return a bundle, a dictionary of its body, and a later bundle packed against that: one lane, version 2."""
    first = encode_bundle(BUNDLE, epoch=0, seq=0)
    later = [replace(point, time=point.time + 10**9) for point in BUNDLE]
    dictionary = unseal(first)[1]
    link, found = NO_LINK, []
    for seq, (subject, message, points) in enumerate(
        [
            ("b", first, BUNDLE),
            (dictionary_subject(digest_of(dictionary)), encode_dictionary(dictionary), []),
            ("b", pack_with(encode_bundle(later, epoch=0, seq=0), dictionary), later),
        ],
        1,
    ):
        stamped = chain(message, epoch=42, seq=seq, link=link)
        link = hash_of(subject, stamped)
        found.append(
            {
                "subject": subject,
                "message": stamped.hex(),
                "kind": peek(stamped).kind.name,
                "hash": link.hex(),
                "points": [plain(point) for point in points],
            }
        )
    return json.dumps(found, indent=1, ensure_ascii=False) + "\n"


def _beside() -> str:
    """Return the subjects on which words pass beside the streams, and watermarks in full and as they are said terse."""
    watermarks = []
    for body in WATERMARKS:
        leaf_subject = "s.watermark.n_front%20axle"
        said = terse(leaf_subject, body)
        assert said is not None
        short = said[0], said[1].hex()
        watermarks.append({"full": [leaf_subject, body.decode()], "terse": short})
    token = "sxYxAB3Ixxx7Wd1Mo"
    found = {
        "pushed": push_subject("VID-001", token, "f.battery"),
        "said": beside_subject("VID-001", token, "k.bulk"),
        "watermarks": watermarks,
    }
    return json.dumps(found, indent=1) + "\n"


def _ledger() -> str:
    """Return a ledger of schema 3: a former epoch that is owed, rows that wait for the time, staged points."""
    lanes = [
        # id, name, epoch, next seq, watermark, confirmed, stream, used seq
        (1, "live", 42, 2, 1, 1, "2026-01-31T10:00:00Z", 1),
        (2, "bulk", 42, 4, 1, 1, "2026-01-31T10:00:00Z", 3),
        (3, "live", 43, 5, 0, 0, "2026-01-31T10:00:00Z", 2),
        (4, "bulk", 43, 3, 0, 0, "2026-01-31T10:00:00Z", 2),
    ]
    epochs = {id_: epoch for id_, _, epoch, *_ in lanes}
    # lane, seq, name of the message, value class, times, boot
    rows = [
        (2, 2, "frame", 1, (NOON, NOON + 2 * 10**9), 0),
        (2, 3, "frame, not compressed", 1, (NOON, NOON + 2 * 10**9), 0),
        (3, 1, "event", 4, None, 0),
        (3, 2, "point", 3, (NOON, NOON), 0),
        (3, 3, "point", 3, (NOON, NOON), 1),
        (3, 4, "event", 4, None, 0),
        (4, 1, "frame", 1, (NOON, NOON + 2 * 10**9), 0),
        (4, 2, "frame, clock unset", 1, (NOON, NOON), 0),
    ]
    script = ["INSERT INTO meta VALUES ('device', 'VID-001'), ('epoch', 43);"]
    script += [f"INSERT INTO lanes VALUES {lane};" for lane in lanes]
    script += ["INSERT INTO boots VALUES (1, 'aaaa-bbbb', 1000, NULL, NULL, 0);"]
    for lane, seq, name, value, times, boot in rows:
        subject, message = MESSAGES[name]
        body = restamp(message, epoch=epochs[lane], seq=seq).hex()
        t_lo, t_hi = times or ("NULL", "NULL")
        script.append(
            "INSERT INTO messages (lane, seq, subject, body, value_class, t_lo, t_hi, boot) VALUES "
            f"({lane}, {seq}, '{subject}', x'{body}', {value}, {t_lo}, {t_hi}, {boot});"
        )
    staged = pack(FRAME[:2])
    script.append(
        "INSERT INTO staged VALUES "
        f"(1, 'battery', 2, {zlib.crc32(staged)}, x'{staged.hex()}', 0, 0);"
    )
    return "\n".join([(HERE / "schemas/ledger-3.sql").read_text(), *script]) + "\n"


def _hub() -> str:
    """Return a hub.db of schema 9: two lanes, one of them with a hole, a receipt, and what limits took."""
    lanes = [
        # lane, epoch, held, aged, seen, receipts, said, messages, repeats, bytes, last seen
        ("bulk", 42, [(1, 5), (9, 9)], [(1, 2)], [(1, 5), (8, 9)], [(6, 6, "evicted")], 11),
        ("live", 42, [(1, 4)], [], [(1, 4)], [], 4),
    ]
    script = ["INSERT INTO device VALUES ('VID-001', '0123456789abcdef01234567', 'UABC', 5);"]
    for lane, epoch, *known, said in lanes:
        texts = ", ".join(f"'{msgspec.json.encode(each).decode()}'" for each in known)
        script.append(
            f"INSERT INTO lane VALUES ('VID-001', '{lane}', {epoch}, {texts}, {said}, 7, 2, 600, 123);"
        )
    script.append("INSERT INTO position VALUES ('UP_00', '2026-01-31T10:00:00Z', 9, 1, 77, 3);")
    return "\n".join([(HERE / "schemas/hub-9.sql").read_text(), *script]) + "\n"


if __name__ == "__main__":
    main()
