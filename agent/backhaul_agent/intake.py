"""What a local program published, checked and turned into points: a pure core, no I/O.

Subjects: ``app.<node>.<type>[.<key>]`` with JSON, ``app.<node>`` with a frame of the Python client.
Every refusal is a `RefusedError` whose code is for programs and whose message is for people.

A point without a time is stamped here, by the best clock there is. A time that came with a point is
the program's word: it is left as it is, unless the program says that it is the machine's wall clock's
(``"clock": "system"``, or the header ``Backhaul-Clock: system``); then it is corrected like our own.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from backhaul_agent.clock import SYSTEM, UNSET_CLOCK, stamp_ms
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.framer import Frame, Points
from backhaul_agent.hub_clock import HubClock, Quality
from backhaul_codec import CodecError, Kind, Opaque, Point, decode, encode_point, peek
from backhaul_codec.retime import retime
from backhaul_codec.subjects import SubjectError, decode_token
from backhaul_codec.survey import Survey, survey

if TYPE_CHECKING:
    from collections.abc import Callable

    from backhaul_agent.clock import Clock
    from backhaul_agent.config import Config
    from backhaul_codec import Value

DTYPES = ("float64", "int64", "text", "json")
SUBJECTS_CACHED = 4096
RAW_TO_FRAME_MAX = 8
INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1
UINT64_MAX = (1 << 64) - 1
_RFC3339 = re.compile(
    r"(\d{4}-\d\d-\d\d)[Tt ](\d\d:\d\d:\d\d)(?:\.(\d{1,9})\d*)?([Zz]|[+-]\d\d:\d\d)"
)


class Json(msgspec.Struct, forbid_unknown_fields=True):
    """The object form of a JSON publish; the bare form is a number or a string alone."""

    value: Any | UnsetType = UNSET
    time: int | str | UnsetType = UNSET
    lane: str | UnsetType = UNSET
    dtype: str | UnsetType = UNSET
    clock: str | UnsetType = UNSET


class Stamps(NamedTuple):
    """What is done to the times of points: shifted, marked, and how good they are."""

    shift_ns: int
    boot: int
    clock: int


class Series(msgspec.Struct, frozen=True):
    """Where a JSON publish belongs, from its subject."""

    node: str
    type: str
    key: str


class Intake:
    """Turns a subject and a payload into points. Knows the limits; keeps a cache of subjects."""

    def __init__(self, config: Config, clock: Clock) -> None:
        self._clock = HubClock.of(clock)
        self._value_bytes_max = config.ingest.value_bytes_max
        self._frame_bytes_max = config.frame.bytes_max
        self._raw_bytes_max = max(
            RAW_TO_FRAME_MAX * config.frame.bytes_max, 2 * config.ingest.value_bytes_max
        )
        self._frame_points_max = config.frame.points_max
        self._object = msgspec.json.Decoder(Json).decode
        self._bare = msgspec.json.Decoder().decode
        self._series: dict[str, Series] = {}

    def parse(self, subject: str, data: bytes, *, clock: str = "") -> Points | Frame:
        """Return what ``data``, published on ``subject``, holds; ``clock`` is the header's word.

        Raises:
            RefusedError: the program's mistake, with a code and a sentence for it.
        """
        if subject.count(".") == 1:
            return self._parse_frame(subject, data, clock)
        series = self._series.get(subject) or self._parse_subject(subject)
        if len(data) > self._value_bytes_max + 1024:
            raise self._too_large(len(data))
        time: int | str | UnsetType = UNSET
        dtype: str | UnsetType = UNSET
        live = False
        if data.lstrip()[:1] == b"{":
            message = decode_json(self._object, data)
            value, time, dtype = message.value, message.time, message.dtype
            if value is UNSET:
                raise RefusedError(Code.BAD_VALUE, 'the object has no "value"')
            live = _is_live(message.lane)
            clock = clock if message.clock is UNSET else message.clock
        else:
            value = decode_json(self._bare, data)
        stamp, stamps = self.stamp(time, clock)
        point = Point(
            node=series.node,
            type=series.type,
            key=series.key,
            time=stamp,
            value=self._value(value, dtype),
        )
        return Points(series.node, (point,), live, stamps.boot, stamps.clock)

    def stamp(self, time: int | str | UnsetType, clock: str) -> tuple[int, Stamps]:
        """Return the time of a point, and what goes for it; without one it is stamped here.

        Raises:
            RefusedError: what the program said of the time makes no sense.
        """
        if time is UNSET:
            return stamp_ms(self._clock), self._made()
        stamps = self._given(clock)
        return _in_range(_time_ns(time) + stamps.shift_ns), stamps

    def _made(self) -> Stamps:
        """Return what goes for stamps that are made here and now."""
        return Stamps(0, self._clock.mark, self._clock.quality)

    def _given(self, word: str, declared: int = 0) -> Stamps:
        """Return what goes for times that came with points; ``declared``: by their frame."""
        worst = max(declared, self._clock.quality)
        if not word:
            return Stamps(0, 0, worst)
        if word == SYSTEM:
            return Stamps(self._clock.system_shift_ns(), self._clock.mark, worst)
        if word == UNSET_CLOCK:
            return Stamps(0, 0, Quality.UNSET)
        raise RefusedError(
            Code.BAD_FIELD, f'clock {word[:32]!r} is neither "{SYSTEM}" nor "{UNSET_CLOCK}"'
        )

    def _parse_subject(self, subject: str) -> Series:
        tokens = subject.split(".")
        if not 3 <= len(tokens) <= 4:
            raise RefusedError(
                Code.BAD_SUBJECT,
                f"{subject!r} is not app.<node>.<type>[.<key>]; percent-encode a dot as %2E",
            )
        try:
            node, type_, key = [decode_token(token) for token in [*tokens[1:], "%"][:3]]
        except SubjectError as error:
            raise RefusedError(Code.BAD_SUBJECT, str(error)) from error
        series = Series(node, type_, key)
        # The codec holds the rule for names; ask it once for each subject, not for each point.
        _check_point(Point(node=node, type=type_, key=key, time=0, value=0.0), Code.BAD_SUBJECT)
        if not node or not type_:
            raise RefusedError(Code.BAD_SUBJECT, f"{subject!r} has an empty node or type")
        if len(self._series) >= SUBJECTS_CACHED:
            self._series.clear()
        self._series[subject] = series
        return series

    def _parse_frame(self, subject: str, data: bytes, clock: str) -> Points | Frame:
        try:
            node = decode_token(subject.partition(".")[2])
        except SubjectError as error:
            raise RefusedError(Code.BAD_SUBJECT, str(error)) from error
        if not node:
            raise RefusedError(Code.BAD_SUBJECT, f"{subject!r} has an empty node")
        if data[:1] in (b"{", b"["):
            raise RefusedError(
                Code.BAD_SUBJECT, "JSON goes to app.<node>.<type>[.<key>]; app.<node> takes frames"
            )
        _require_size(len(data), self._frame_bytes_max, "bytes")
        try:
            header = peek(data)
            # Checked before anything is inflated: 30 KB may hold megabytes of zeros.
            _require_size(header.raw_len, self._raw_bytes_max, "bytes before compression")
            if header.kind is not Kind.FRAME:
                raise RefusedError(Code.BAD_FRAME, "app.<node> takes frames, this is a point")
            return self._frame(node, data, survey(data, node=node), clock)
        except CodecError as error:
            raise RefusedError(Code.BAD_FRAME, error.reason) from error

    def _frame(self, node: str, data: bytes, content: Survey, word: str) -> Points | Frame:
        """Pass a large batch through as it is; take a small one apart, to fill a better frame."""
        stamps = self._given(word, content.clock)
        if stamps.shift_ns or stamps.clock != content.clock:
            data = retime(data, stamps.shift_ns, clock=stamps.clock)
        if content.n * 2 >= self._frame_points_max or len(data) * 2 >= self._frame_bytes_max:
            times = (content.t_lo + stamps.shift_ns, content.t_hi + stamps.shift_ns)
            return Frame(node, data, content.n, times, stamps.boot)
        points = decode(data, node=node).points
        return Points(node, points, boot=stamps.boot, clock=stamps.clock)

    def _value(self, value: Any, dtype: str | UnsetType) -> Value:
        if dtype is UNSET:
            return self._plain_value(value)
        if dtype == "json":
            return Opaque(6, self._sized(msgspec.json.encode(value)))
        if dtype == "text" and isinstance(value, str):
            return self._plain_value(value)
        if dtype == "float64" and type(value) in (int, float):
            return float(value)
        if dtype == "int64" and type(value) is int and INT64_MIN <= value <= UINT64_MAX:
            return value
        if dtype not in DTYPES:
            raise RefusedError(Code.BAD_FIELD, f"dtype {dtype!r} is none of {', '.join(DTYPES)}")
        raise RefusedError(Code.BAD_VALUE, f"a {_json_type(value)} does not fit dtype {dtype}")

    def _plain_value(self, value: Any) -> Value:
        if type(value) is float:
            return value
        if type(value) is int:
            return float(value)
        if isinstance(value, str):
            self._sized(value.encode())
            return value
        raise RefusedError(
            Code.BAD_VALUE,
            f'a {_json_type(value)} is no value: send a number, a string, or "dtype": "json"',
        )

    def _sized(self, data: bytes) -> bytes:
        if len(data) > self._value_bytes_max:
            raise self._too_large(len(data))
        return data

    def _too_large(self, size: int) -> RefusedError:
        return RefusedError(
            Code.TOO_LARGE, f"a value of {size} bytes, {self._value_bytes_max} are allowed"
        )


def time_ns_of(text: str) -> int:
    """Return the nanoseconds since the Unix epoch of an RFC 3339 time, exactly.

    Raises:
        ValueError: it is none, has no zone, or does not fit 64 bits.
    """
    found = _RFC3339.fullmatch(text.strip())
    if not found:
        raise ValueError(f"{text[:64]!r} is no RFC 3339 time with a zone")
    day, clock, fraction, zone = found.groups()
    moment = datetime.fromisoformat(f"{day}T{clock}{'+00:00' if zone in 'Zz' else zone}")
    # Whole seconds by integers: a float timestamp would round nanoseconds away.
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    seconds = since.days * 86_400 + since.seconds
    time = seconds * 1_000_000_000 + int((fraction or "0").ljust(9, "0"))
    if not INT64_MIN <= time <= INT64_MAX:
        raise ValueError(f"{text[:64]!r} does not fit 64 bits of nanoseconds")
    return time


def _require_size(size: int, allowed: int, unit: str) -> None:
    if size > allowed:
        raise RefusedError(
            Code.TOO_LARGE,
            f"a frame of {size} {unit}, {allowed} are allowed: send fewer points or smaller values",
        )


def _time_ns(time: int | str) -> int:
    if isinstance(time, int):
        return _in_range(time)
    try:
        return time_ns_of(time)
    except ValueError as error:
        raise RefusedError(Code.BAD_TIME, str(error)) from error


def _in_range(time: int) -> int:
    if INT64_MIN <= time <= INT64_MAX:
        return time
    raise RefusedError(Code.BAD_TIME, f"time {time} does not fit 64 bits of nanoseconds")


def _is_live(lane: str | UnsetType) -> bool:
    if lane is UNSET or lane == "bulk":
        return False
    if lane == "live":
        return True
    raise RefusedError(Code.BAD_FIELD, f'lane {lane!r} is neither "live" nor "bulk"')


def decode_json(decoder: Callable[[bytes], Any], data: bytes) -> Any:
    """Return what a decoder of msgspec makes of a payload.

    Raises:
        RefusedError: it is no JSON, or other JSON than the decoder's.
    """
    try:
        return decoder(data)
    except msgspec.ValidationError as error:
        text = str(error)
        place = text.rpartition("$.")[2].rstrip("`")
        code = {"time": Code.BAD_TIME, "value": Code.BAD_VALUE}.get(place, Code.BAD_FIELD)
        raise RefusedError(code, text.replace("$.", "")) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RefusedError(Code.BAD_JSON, f"not JSON: {error}") from None


def _check_point(point: Point, code: Code) -> None:
    try:
        encode_point(point, epoch=0, seq=0)
    except CodecError as error:
        raise RefusedError(code, error.reason) from error


def _json_type(value: Any) -> str:
    names = {bool: "boolean", dict: "object", list: "list", str: "string", type(None): "null"}
    return names.get(type(value), "number")
