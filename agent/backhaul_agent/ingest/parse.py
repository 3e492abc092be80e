"""A local program's publish, checked and turned into points: a pure core, no I/O.

Subjects: ``app.<node>.<type>[.<key>]`` with one reading in JSON, ``app.<node>`` with several of them, or
with a frame of the Python client. Every refusal is a `RefusedError` whose code is for programs and whose message is for people.

A point without a time is stamped here, by the best clock there is. A time that came with a point is
the program's word: it is left as it is, unless the program says that it is the machine's wall clock's
(``"clock": "system"``, or the header ``Backhaul-SteadyClock: system``); then it is corrected like our own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, UnsetType

from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.commit.contents import Frame, Points
from backhaul_agent.config import Config
from backhaul_agent.errors import Code, RefusedError
from backhaul_agent.hub_time.hub_clock import HubClock, Quality
from backhaul_agent.stamps import SYSTEM, UNSET_CLOCK, stamp_ms
from backhaul_codec import CodecError, Kind, Opaque, Point, Value, decode, encode_point, peek
from backhaul_codec.points import INT64_MAX, INT64_MIN, JSON
from backhaul_codec.rules import blob_size
from backhaul_codec.state.json_values import value_from_json
from backhaul_codec.state.rfc3339 import time_ns_of
from backhaul_codec.strict.json import JsonError, Reader, read_json, with_minus_zero, write_json
from backhaul_codec.subjects import SubjectError, decode_token, encode_token
from backhaul_codec.wire.expansion import FRAME_EXPANDED_MAX, FRAME_POINTS_MAX
from backhaul_codec.wire.retime import retime
from backhaul_codec.wire.split import Survey, split_frame, survey
from backhaul_runtime.clock import SteadyClock

SUBJECTS_CACHED = 4096
RAW_TO_FRAME_MAX = 8
PASSED_POINTS = 125
"""A batch of so many points is passed through as it is: to take it apart costs the agent more than the link gains."""
READINGS_MAX = 1000  # in one JSON message
_BLANKS = b" \t\r\n"


class Words(msgspec.Struct):
    """The fields beside readings in one JSON message, which go for all of them."""

    time: int | str | UnsetType = UNSET
    lane: str | UnsetType = UNSET
    clock: str | UnsetType = UNSET


class Json(Words, forbid_unknown_fields=True, kw_only=True):
    """The object form of a JSON publish; the bare form is a number, true, false or a string alone."""

    value: Any | UnsetType = UNSET
    dtype: str | UnsetType = UNSET


_NO_WORDS = Words()
_WORDS = frozenset(Words.__struct_fields__)
_ONE_BY_ONE = (
    "JSON goes to app.<node>.<type>[.<key>] where it is of one reading; app.<node> takes several, as in"
    ' {"soc": 81.2, "charging": true}, and frames'
)


class StampTreatment(NamedTuple):
    """The treatment of points' times: the shift, the mark, and how good they are."""

    shift_ns: int
    boot: int
    clock: int


class JsonSeries(NamedTuple):
    """Where a reading in JSON belongs, from its subject."""

    node: str
    type: str
    key: str


class Intake:
    """Turns a subject and a payload into points. Knows the limits; keeps a cache of subjects."""

    def __init__(self, config: Config, clock: SteadyClock) -> None:
        self._clock = HubClock.of(clock)
        self._value_bytes_max = config.ingest.value_bytes_max
        self._frame_bytes_max = config.frame.bytes_max
        self._raw_bytes_max = max(
            RAW_TO_FRAME_MAX * config.frame.bytes_max, 2 * config.ingest.value_bytes_max
        )
        self._passed_points = min((config.frame.points_max + 1) // 2, PASSED_POINTS)
        self._object = Reader(Json).read
        self._words = Reader(Words).read
        self._series: dict[str, JsonSeries] = {}

    def parse(self, subject: str, data: bytes, *, clock: str = "") -> Points | Frame:
        """Return the points of ``data``, published on ``subject``; ``clock`` is the header's word.

        Raises:
            RefusedError: the program's mistake, with a code and a sentence for it.
        """
        if subject.count(".") == 1:
            if data.lstrip(_BLANKS)[:1] in (b"{", b"["):
                return self._parse_readings(subject, data, clock)
            return self._parse_frame(subject, data, clock)
        series = self._series.get(subject) or self._parse_subject(subject)
        if len(data) > self._value_bytes_max + 1024:
            raise self._too_large(len(data))
        words = _NO_WORDS
        dtype: str | UnsetType = UNSET
        if data.lstrip(_BLANKS)[:1] == b"{":
            words = message = read_program_json(self._object, data)
            value, dtype = message.value, message.dtype
            if value is UNSET:
                raise RefusedError(Code.BAD_VALUE, 'the object has no "value"')
            if type(value) is int and not value and dtype is UNSET and b"-0" in data:
                value = read_json(with_minus_zero(data))["value"]
        else:
            value = read_program_json(read_json, data)
            if type(value) is int and not value and b"-0" in data:
                value = -0.0
        live, stamp, stamps = self._read_words(words, clock)
        found = self._value(value, dtype)
        point = Point(node=series.node, type=series.type, key=series.key, time=stamp, value=found)
        return Points(series.node, (point,), live, stamps.boot, stamps.clock)

    def _parse_readings(self, subject: str, data: bytes, clock: str) -> Points:
        """Return several readings of one node: each name is the end of the subject of one alone.

        No name can say another node: rights go by the subject.
        """
        if self._parse_node(subject) and data.lstrip(_BLANKS)[:1] == b"[":
            raise RefusedError(Code.BAD_SUBJECT, _ONE_BY_ONE)
        _require_size(len(data), self._raw_bytes_max, "bytes")
        words = read_program_json(self._words, data)
        said = read_json(with_minus_zero(data) if b"-0" in data else data)
        named = {name: value for name, value in said.items() if name not in _WORDS}
        if not named or not named.keys().isdisjoint(("value", "dtype")):
            raise RefusedError(Code.BAD_SUBJECT, _ONE_BY_ONE)
        if len(named) > READINGS_MAX:
            raise RefusedError(
                Code.TOO_LARGE, f"{len(named)} readings in one message, {READINGS_MAX} are allowed"
            )
        readings: dict[JsonSeries, tuple[JsonSeries, Any, Any]] = {}
        for name, value in named.items():
            series = self._named(subject, name)
            if series in readings:
                raise RefusedError(Code.BAD_FIELD, f"{name[:80]!r} is in it twice")
            readings[series] = (series, *_with_dtype(name, value))
        live, stamp, stamps = self._read_words(words, clock)
        points = []
        for (node, type_, key), value, dtype in readings.values():
            try:
                found = self._value(value, dtype)
            except RefusedError as error:
                if len(readings) == 1:
                    raise
                raise RefusedError(error.code, f"{type_[:80]!r}: {error.message}") from None
            points.append(Point(node=node, type=type_, key=key, time=stamp, value=found))
        return Points(node, tuple(points), live, stamps.boot, stamps.clock)

    def _named(self, subject: str, name: str) -> JsonSeries:
        whole = f"{subject}.{name}"
        try:
            return self._series.get(whole) or self._parse_subject(whole)
        except RefusedError as error:
            said = encode_token(name[:80])
            raise RefusedError(
                Code.BAD_FIELD,
                f"{name[:80]!r} is not <type>[.<key>] as in a subject ({error.message});"
                f" as one type it is written {said!r}",
            ) from None

    def _read_words(self, words: Words, clock: str) -> tuple[bool, int, StampTreatment]:
        """Return whether readings go to the lane `live`, their time, and the clock's word on it."""
        live = _is_live(words.lane)
        return live, *self.stamp(words.time, clock if words.clock is UNSET else words.clock)

    def stamp(self, time: int | str | UnsetType, clock: str) -> tuple[int, StampTreatment]:
        """Return the time of a point, and the clock's word on it; without one it is stamped here.

        Raises:
            RefusedError: what the program said of the time makes no sense.
        """
        if time is UNSET:
            return stamp_ms(self._clock), self._made()
        stamps = self._given(clock)
        return _in_range(_time_ns(time) + stamps.shift_ns), stamps

    def _made(self) -> StampTreatment:
        """Return the clock's word on stamps that are made here and now."""
        return StampTreatment(0, self._clock.mark, self._clock.quality)

    def _given(self, word: str, declared: int = 0) -> StampTreatment:
        """Return the clock's word on times that came with points; ``declared``: by their frame."""
        worst = max(declared, self._clock.quality)
        if not word:
            return StampTreatment(0, 0, worst)
        if word == SYSTEM:
            return StampTreatment(self._clock.system_shift_ns(), self._clock.mark, worst)
        if word == UNSET_CLOCK:
            return StampTreatment(0, 0, Quality.UNSET)
        raise RefusedError(
            Code.BAD_FIELD, f'clock {word[:32]!r} is neither "{SYSTEM}" nor "{UNSET_CLOCK}"'
        )

    def _parse_subject(self, subject: str) -> JsonSeries:
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
        series = JsonSeries(node, type_, key)
        # The codec holds the rule for names; ask it once for each subject, not for each point.
        _check_point(Point(node=node, type=type_, key=key, time=0, value=0.0), Code.BAD_SUBJECT)
        if not node or not type_:
            raise RefusedError(Code.BAD_SUBJECT, f"{subject!r} has an empty node or type")
        if len(self._series) >= SUBJECTS_CACHED:
            self._series.clear()
        self._series[subject] = series
        return series

    def _parse_frame(self, subject: str, data: bytes, clock: str) -> Points | Frame:
        node = self._parse_node(subject)
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

    @staticmethod
    def _parse_node(subject: str) -> str:
        try:
            node = decode_token(subject.partition(".")[2])
        except SubjectError as error:
            raise RefusedError(Code.BAD_SUBJECT, str(error)) from error
        if not node:
            raise RefusedError(Code.BAD_SUBJECT, f"{subject!r} has an empty node")
        return node

    def _frame(self, node: str, data: bytes, content: Survey, word: str) -> Points | Frame:
        """Pass a large batch through as it is; take a small one apart, to fill a better frame.

        One that comes to more than an agent may write becomes several.
        """
        stamps = self._given(word, content.clock)
        if stamps.shift_ns or stamps.clock != content.clock:
            data = retime(data, stamps.shift_ns, clock=stamps.clock)
        if content.n > FRAME_POINTS_MAX or content.size > FRAME_EXPANDED_MAX:
            first, *rest = split_frame(data)
            return Frame(node, first.body, content.n, first.times, stamps.boot, tuple(rest))
        if content.n >= self._passed_points or len(data) * 2 >= self._frame_bytes_max:
            times = (content.t_lo + stamps.shift_ns, content.t_hi + stamps.shift_ns)
            return Frame(node, data, content.n, times, stamps.boot)
        points = decode(data, node=node).points
        return Points(node, points, boot=stamps.boot, clock=stamps.clock)

    def _value(self, value: Any, dtype: str | UnsetType) -> Value:
        if dtype is UNSET:
            if type(value) is float:
                return value
            if type(value) is bool:
                return float(value)
        try:
            # Of what was read strictly this makes JSON that says the same, and is quick.
            found = (
                Opaque(JSON, write_json(value))
                if dtype == "json"
                else value_from_json(value, None if dtype is UNSET else dtype)
            )
        except CodecError as error:
            code = Code.BAD_FIELD if isinstance(error, JsonError) else Code.BAD_VALUE
            raise RefusedError(code, error.reason) from error
        if (size := blob_size(found)) > self._value_bytes_max:
            raise self._too_large(size)
        return found

    def _too_large(self, size: int) -> RefusedError:
        return RefusedError(
            Code.TOO_LARGE, f"a value of {size} bytes, {self._value_bytes_max} are allowed"
        )


def _with_dtype(name: str, value: Any) -> tuple[Any, str | UnsetType]:
    """Return a reading among several, and its dtype: bare, or with it in an object of its own."""
    if type(value) is not dict:
        return value, UNSET
    dtype = value.get("dtype", UNSET)
    known = "value" in value and value.keys() <= {"value", "dtype"}
    if not known or type(dtype) not in (str, UnsetType):
        raise RefusedError(
            Code.BAD_VALUE,
            f'{name[:80]!r}: an object is no value; {{"value": …, "dtype": "int64"}} gives one its dtype',
        )
    return value["value"], dtype


def _require_size(size: int, allowed: int, unit: str) -> None:
    if size > allowed:
        raise RefusedError(
            Code.TOO_LARGE,
            f"{size} {unit}, {allowed} are allowed: send fewer points at once, or smaller values",
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


def _check_point(point: Point, code: Code) -> None:
    try:
        encode_point(point, epoch=0, seq=0)
    except CodecError as error:
        raise RefusedError(code, error.reason) from error
