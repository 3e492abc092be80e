"""Shift the times of a message that is written already, without building or encoding a point.

For a vehicle that learns only later how wrong its clock was: what it kept meanwhile is corrected on
its way out. A frame has one absolute time, t0; the others are differences. So only t0 and the clock's
quality are written anew and all columns are copied as bytes.
"""

from __future__ import annotations

from typing import NamedTuple

import cbor2

from backhaul_codec.errors import CodecError
from backhaul_codec.points import INT64_MAX, INT64_MIN, Kind
from backhaul_codec.wire import cbor
from backhaul_codec.wire.compression import COMPRESSIONS
from backhaul_codec.wire.envelope import CODEC_OFFSET, seal, unseal
from backhaul_codec.wire.frame_fields import Field
from backhaul_codec.wire.frame_layout import read_layout
from backhaul_codec.wire.frame_points import build_times
from backhaul_codec.wire.point_body import read_point


class _Span(NamedTuple):
    """Hold where a field of a frame is: its key, its value, and the end of that."""

    key: int
    start: int
    value: int
    end: int


def retime(message: bytes, offset_ns: int, *, clock: int | None = None) -> bytes:
    """Return the message with `offset_ns` added to all its times; epoch and seq stay.

    `clock` is what a frame says of the clock from now on: 0 synced, 1 holdover, 2 unset, None what
    it said before. A point has no place for it. Fields that this version does not know are kept.

    Raises: CodecError, `time` if a time would leave int64: nothing is written then.
    """
    if clock not in (None, 0, 1, 2):
        raise CodecError(f"clock {clock!r} is not 0, 1 or 2", "clock")
    header, body = unseal(message)
    if header.kind is Kind.DICTIONARY:
        return message
    if header.kind is Kind.POINT:
        body = _shift_point(body, offset_ns)
    else:
        body = _shift_frame(body, offset_ns, clock)
    compression = COMPRESSIONS[message[CODEC_OFFSET]]
    return seal(body, header.kind, header.epoch, header.seq, compression)


def _shift_point(body: bytes, offset_ns: int) -> bytes:
    time, *_ = read_point(body)
    head = cbor.read_head(body, 0)
    end = cbor.item_end(body, head.end)
    return body[: head.end] + cbor2.dumps(_shifted(time, offset_ns)) + body[end:]


def _shift_frame(body: bytes, offset_ns: int, clock: int | None) -> bytes:
    spans = _fields(body)
    _require_in_range(body, {span.key: span for span in spans}, offset_ns)
    if clock is not None:
        spans = [span for span in spans if span.key != Field.CLOCK]
    fields = [body[span.start : span.end] for span in spans]
    for number, span in enumerate(spans):
        if span.key == Field.T0:
            t0 = cbor2.dumps(_shifted(_integer(body, span), offset_ns))
            fields[number] = body[span.start : span.value] + t0
    if clock:
        fields.append(cbor2.dumps(int(Field.CLOCK)) + cbor2.dumps(clock))
    return cbor.write_map_head(len(fields)) + b"".join(fields)


def _fields(body: bytes) -> list[_Span]:
    """Return where the fields of a frame are, in the order in which they stand."""
    cbor.require_few_items(body)
    head = cbor.read_head(body, 0)
    if head.major != cbor.MAP:
        raise CodecError("a frame is a CBOR map", "field")
    spans, at = [], head.end
    for _ in range(head.argument):
        key = cbor.read_head(body, at)
        if key.major != cbor.UNSIGNED:
            raise CodecError("a frame has a key that is no unsigned integer", "field")
        end = cbor.item_end(body, key.end)
        spans.append(_Span(key.argument, at, key.end, end))
        at = end
    if at != len(body):
        raise CodecError("bytes follow the CBOR item", "trailing")
    return spans


def _integer(body: bytes, span: _Span | None) -> int:
    if span is not None:
        head = cbor.read_head(body, span.value)
        if head.major == cbor.UNSIGNED:
            return head.argument
        if head.major == cbor.NEGATIVE:
            return -1 - head.argument
    raise CodecError("n, t0 or unit is missing or no integer", "field")


def _require_in_range(body: bytes, spans: dict[int, _Span], offset_ns: int) -> None:
    """Refuse an offset that takes a time out of int64; look at single times only if one may be."""
    n = _integer(body, spans.get(Field.N))
    t0 = _integer(body, spans.get(Field.T0))
    unit = _integer(body, spans.get(Field.UNIT))
    dt = spans.get(Field.DT)
    if dt is None or not 1 <= n <= len(body) or unit < 0:
        raise CodecError("n, unit or dt cannot be", "field")
    # dt's bytes over its n-1 numbers: how far they can lead from t0 at all.
    width = min(8, (dt.end - dt.value) // max(1, n - 1))
    reach = (n - 1) * unit * 2 ** (8 * width)
    if abs(t0) + abs(offset_ns) + reach > INT64_MAX:
        times = build_times(read_layout(body, bundle=Field.NODES in spans))
        _shifted(min(times), offset_ns)
        _shifted(max(times), offset_ns)


def _shifted(time: int, offset_ns: int) -> int:
    if not INT64_MIN <= time + offset_ns <= INT64_MAX:
        raise CodecError(f"a time would leave int64 by an offset of {offset_ns} ns", "time")
    return time + offset_ns
