"""Turn messages into the rules' view of them: the source's `samples` format. Executor side.

One row a bucket and batch of messages, also for buckets that nothing was said to: by `until_ns` each
knows how far the stream has been read. Points that no rule wants are left out here, before they cost
anything. Of DOWN only the config points that rules go by are looked at.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
from numpy.typing import NDArray

from backhaul_codec import CodecError, decode
from backhaul_codec.kinds import POINT
from backhaul_codec.protocol.presence import BEAT, read_presence
from backhaul_codec.protocol.words import MarkWord, WordError, read_word
from backhaul_codec.subjects import DEVICE_ID, SubjectError, parse_leaf
from backhaul_spark.arrays import Flags, Ints
from backhaul_spark.columns import columns
from backhaul_spark.decode.points import CLOCK_UNSET, decode_batch
from backhaul_spark.decode.sample_batch import (
    ALIVE,
    AWAY,
    MARKS,
    MESSAGE,
    OTHER_MARK,
    SAMPLE,
    UNTIMELY,
    Batch,
    HeadWord,
    Unread,
    device_hash,
    hashes,
    lane_hashes,
)
from backhaul_spark.decode.series import SeriesKey, parse_series
from backhaul_spark.nats.dictionaries import CODE as LOST_CODE
from backhaul_spark.nats.dictionaries import DictionaryReader
from backhaul_spark.nats.messages import leaf_of

SAMPLE_ROWS = columns(
    """
    bucket int not null, stream string not null, until_ns bigint not null,
    messages binary not null, samples binary not null, said binary not null
    """
)

# A point this much later than the hub stored it, or from before 2000, was stamped by a wrong clock.
_AHEAD_NS = 60_000_000_000
_EARLIEST_NS = 946_684_800_000_000_000
# The hub takes no config point from further ahead (max_future_skew_s); so it counts nowhere.
_HEAD_AHEAD_NS = 5_000_000_000
_MARK_END = ".e.mark"
# The codec's columns of a point's own, and what POINTS calls them.
_OWN_COLUMNS = {
    **{name: name for name in ("node", "type", "key", "tombstone", "origin", "clock")},
    "time": "time_ns",
    "f64": "value_f64",
    "i64": "value_i64",
    "text": "value_text",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which series are wanted, by place in `series` and `heads`; and how many buckets there are."""

    series: tuple[SeriesKey, ...]
    heads: tuple[SeriesKey, ...]
    buckets: int


def wanted_from(signals: str, heads: str, buckets: int) -> Wanted:
    """Read the source's options. Raises: OptionError."""
    return Wanted(_listed(signals, "signals"), _listed(heads, "heads"), buckets)


def _listed(text: str, option: str) -> tuple[SeriesKey, ...]:
    return tuple(parse_series(item.strip(), option) for item in text.split(",") if item.strip())


def sample_rows(
    batch: pa.RecordBatch, wanted: Wanted, dictionaries: DictionaryReader | None = None
) -> pa.RecordBatch:
    """Return a batch of schema MESSAGES, all of one stream, as rows of SAMPLE_ROWS."""
    stored_ns = batch.column("stored_at").fill_null(0).cast(pa.int64()).to_numpy() * 1000
    good = batch.column("code").is_null().to_numpy(zero_copy_only=False)
    messages = _messages(batch, stored_ns, good)
    present, watched_ns = _presence(batch, messages)
    good[list(present)] = True
    samples, heads, unread = _points(batch, stored_ns, wanted, dictionaries)
    heads += _down(batch, stored_ns, wanted)
    # Rows that are no message of a vehicle's (garbage, gaps, DOWN) fall out here.
    place = np.cumsum(good) - 1
    samples["message"] = place[samples["message"]]
    named = batch.column("device").filter(pa.array(good)).drop_null().unique().to_pylist()
    devices = list(dict.fromkeys([*named, *present.values()]))
    packed = list(
        _by_bucket(*(messages[good], samples, devices, heads, wanted.buckets, watched_ns, unread))
    )
    columns: list[Any] = [
        list(range(wanted.buckets)),
        [batch.column("stream")[0].as_py()] * wanted.buckets,
        [int(stored_ns.max(initial=0))] * wanted.buckets,
        [part.messages.tobytes() for part in packed],
        [part.samples.tobytes() for part in packed],
        [part.said() for part in packed],
    ]
    arrays = [pa.array(c, field.type) for c, field in zip(columns, SAMPLE_ROWS, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=SAMPLE_ROWS)


def _messages(batch: pa.RecordBatch, stored_ns: Ints, good: Flags) -> NDArray[np.void]:
    messages = np.zeros(batch.num_rows, MESSAGE)
    messages["stored_ns"] = stored_ns
    messages["device"] = hashed(batch.column("device"))
    messages["seq"] = batch.column("seq").fill_null(0).to_numpy()
    epochs = batch.column("epoch").fill_null(0).to_numpy()
    messages["lane"] = lane_hashes(messages["device"], hashed(batch.column("lane")), epochs)
    for row, subject in enumerate(batch.column("subject").to_pylist()):
        if good[row] and subject.endswith(_MARK_END):
            messages["mark"][row] = _mark(subject, epochs[row], batch.column("body")[row].as_py())
    return messages


def _presence(batch: pa.RecordBatch, messages: NDArray[np.void]) -> tuple[dict[int, str], int]:
    """Mark the hub's words on presence; return each such row's device, and when the hub said so last.

    Of DOWN, which no vehicle writes to: in UP the same subject would be nobody's.
    """
    found: dict[int, str] = {}
    watched_ns = 0
    for row, subject in enumerate(batch.column("subject").to_pylist()):
        if not (subject or "").startswith(BEAT):
            continue
        watched_ns = max(watched_ns, int(messages["stored_ns"][row]))
        word = read_presence(subject, batch.column("body")[row].as_py())
        if word is not None and DEVICE_ID.match(word[0]):
            found[row] = word[0]
            messages["device"][row] = device_hash(word[0])
            messages["mark"][row] = ALIVE if word[1] else AWAY
    return found, watched_ns


def hashed(column: pa.Array) -> NDArray[np.uint64]:
    """Return `device_hash` of each name of a column, "" for null."""
    encoded = column.fill_null("").dictionary_encode()
    rows: NDArray[np.intp] = encoded.indices.to_numpy()
    return hashes(encoded.dictionary.to_pylist())[rows]


def _mark(subject: str, epoch: int, body: bytes) -> int:
    try:
        word = read_word(leaf_of(subject), epoch, body)
    except (WordError, CodecError):
        return 0
    return MARKS.get(word.why, OTHER_MARK) if isinstance(word, MarkWord) else 0


def _points(
    batch: pa.RecordBatch,
    stored_ns: Ints,
    wanted: Wanted,
    dictionaries: DictionaryReader | None,
) -> tuple[NDArray[np.void], list[HeadWord], list[Unread]]:
    found: list[NDArray[np.void]] = [np.empty(0, SAMPLE)]
    heads: list[HeadWord] = []
    lost: list[int] = []
    start = 0
    for decoded in decode_batch(batch, dictionaries):
        message = start + decoded.message
        lost += [start + row for row, (code, _) in decoded.rejected.items() if code == LOST_CODE]
        start += len(decoded.counts)
        if not len(message):
            continue
        points = _own_columns(decoded.columns)
        codes = series_codes(points, wanted.series)
        found.append(samples_of(points, message, codes, stored_ns))
        at = series_codes(points, wanted.heads)
        rows = np.flatnonzero(at >= 0)
        device = batch.column("device").take(pa.array(message[rows]))
        of_heads = points.take(pa.array(rows)).append_column("device", device)
        heads += head_words(of_heads, at[rows], stored_ns[message[rows]])
    return np.concatenate(found), heads, list(_unread(batch, lost, stored_ns))


def _unread(
    batch: pa.RecordBatch, lost: Sequence[int], stored_ns: NDArray[np.int64]
) -> Iterator[Unread]:
    of_device: dict[str, list[int]] = {}
    for row in lost:
        device = batch.column("device")[row].as_py()
        of_device.setdefault(device, []).append(int(stored_ns[row]))
    for device, times_ns in of_device.items():
        yield Unread(device, len(times_ns), min(times_ns), max(times_ns))


def _own_columns(columns: pa.RecordBatch) -> pa.RecordBatch:
    """Return the columns that rules look at, named as in POINTS; per-message columns cost more."""
    return pa.RecordBatch.from_arrays(
        [columns.column(name) for name in _OWN_COLUMNS], names=list(_OWN_COLUMNS.values())
    )


def samples_of(
    points: pa.RecordBatch,
    message: NDArray[np.intp],
    codes: NDArray[np.int16],
    stored_ns: Ints,
) -> NDArray[np.void]:
    """Return the wanted points, `codes` from 0, as batch.SAMPLE. `message`: the message of each point.

    All are (points,): `message` intp, `codes` int16, `stored_ns` int64, ns since 1970.
    """
    number = points.column("value_f64").is_valid().to_numpy(zero_copy_only=False)
    whole = points.column("value_i64").is_valid().to_numpy(zero_copy_only=False)
    living = points.column("tombstone").to_numpy() % 2 == 0
    rows = np.flatnonzero((codes >= 0) & (number | whole) & living)
    time_ns = points.column("time_ns").to_numpy()[rows]
    as_float = points.column("value_f64").fill_null(0.0).to_numpy()[rows]
    as_whole = points.column("value_i64").fill_null(0).to_numpy()[rows]
    samples = np.zeros(len(rows), SAMPLE)
    samples["message"], samples["time_ns"] = message[rows], time_ns
    samples["value"] = np.where(number[rows], as_float, as_whole)
    untimely = (time_ns > stored_ns[message[rows]] + _AHEAD_NS) | (time_ns < _EARLIEST_NS)
    untimely |= points.column("clock").to_numpy()[rows] == CLOCK_UNSET
    samples["signal"] = np.where(untimely, UNTIMELY, codes[rows])
    return samples


def series_codes(points: pa.RecordBatch, series: Sequence[SeriesKey]) -> NDArray[np.int16]:
    """Return the place in `series` of each point's own, -1 for none."""
    codes = np.full(points.num_rows, -1, np.int16)
    names = [_indices(points.column(name)) for name in ("node", "type", "key")]
    for code, one in enumerate(series):
        same = np.ones(points.num_rows, np.bool_)
        for (indices, known), name in zip(names, one, strict=True):
            same &= indices == known.get(name, -1)
        codes[same] = code
    return codes


def _indices(column: pa.Array) -> tuple[NDArray[np.int32], dict[str, int]]:
    encoded = column if isinstance(column, pa.DictionaryArray) else column.dictionary_encode()
    return encoded.indices.to_numpy(), {n: i for i, n in enumerate(encoded.dictionary.to_pylist())}


def head_words(points: pa.RecordBatch, at: NDArray[np.int16], stored_ns: Ints) -> list[HeadWord]:
    """Return config points, `at` being the place of each one's series among the heads.

    Both are (points,): `at` int16, `stored_ns` int64, ns since 1970.
    """
    names = ("device", "time_ns", "origin", "tombstone", "value_f64", "value_i64", "value_text")
    words = []
    for place, row in enumerate(points.select(names).to_pylist()):
        values = [row[name] for name in names[4:] if row[name] is not None]
        if values and row["time_ns"] <= stored_ns[place] + _HEAD_AHEAD_NS:
            words.append(
                HeadWord(
                    row["device"],
                    int(at[place]),
                    row["time_ns"],
                    row["origin"],
                    row["tombstone"],
                    values[0],
                    int(stored_ns[place]),
                )
            )
    return words


def _down(batch: pa.RecordBatch, stored_ns: Ints, wanted: Wanted) -> Iterator[HeadWord]:
    """Yield the config points on their way to vehicles, `in.<device>.p.<node>.<type>.<key>`."""
    for row, subject in enumerate(batch.column("subject").to_pylist()):
        if not (subject or "").startswith("in."):
            continue
        _, device, leaf_subject = (*subject.split(".", 2), "", "")[:3]
        try:
            place = parse_leaf(leaf_subject, device)
            if not DEVICE_ID.match(device) or place.kind is not POINT or place.parent is not None:
                continue
            body = batch.column("body")[row].as_py()
            points = decode(body, node=place.node, type=place.type, key=place.key).points
        except (SubjectError, CodecError):
            continue
        for point in points:
            series = SeriesKey(point.node, point.type, point.key)
            if series in wanted.heads and isinstance(point.value, float | int | str):
                yield HeadWord(
                    device,
                    wanted.heads.index(series),
                    point.time,
                    point.origin,
                    point.tombstone,
                    point.value,
                    int(stored_ns[row]),
                )


def _by_bucket(
    messages: NDArray[np.void],
    samples: NDArray[np.void],
    devices: Sequence[str],
    heads: Sequence[HeadWord],
    buckets: int,
    watched_ns: int = 0,
    unread: Sequence[Unread] = (),
) -> Iterator[Batch]:
    """Part the samples by the devices' hashes."""
    bucket = (messages["device"] % np.uint64(buckets)).astype(np.intp)
    order = np.argsort(bucket, kind="stable")
    bounds = np.searchsorted(bucket[order], np.arange(buckets + 1))
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    of_sample = bucket[samples["message"]]
    devices_of: list[list[str]] = [[] for _ in range(buckets)]
    for name in devices:
        devices_of[device_hash(name) % buckets].append(name)
    for number in range(buckets):
        mine = samples[of_sample == number]
        mine["message"] = place[mine["message"]] - bounds[number]
        yield Batch(
            messages[order[bounds[number] : bounds[number + 1]]],
            mine,
            devices_of[number],
            [head for head in heads if device_hash(head.device) % buckets == number],
            watched_ns,
            [each for each in unread if device_hash(each.device) % buckets == number],
        )
