"""What programs publish: accepted exactly, or refused with the right code and a useful sentence."""

from __future__ import annotations

import contextlib
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.commit.contents import Frame, Points
from backhaul_agent.commit.framer import Framer
from backhaul_agent.config import Config, DeviceConfig, FrameConfig, IngestConfig
from backhaul_agent.errors import RefusedError
from backhaul_agent.ingest.parse import Intake
from backhaul_codec import Opaque, Point, decode, encode_frame, encode_point
from backhaul_codec.state.rfc3339 import time_ns_of
from backhaul_codec.wire.expansion import FRAME_EXPANDED_MAX, FRAME_POINTS_MAX
from backhaul_codec.wire.split import survey
from tests.support.agent_clock import FakeClock
from tests.support.bombs import points_bomb, text_bomb

NOW = 1_700_000_000_123_456_789
CONFIG = Config(
    device=DeviceConfig(id="VID-001", token="tok"),
    frame=FrameConfig(points_max=10, bytes_max=2048),
    ingest=IngestConfig(value_bytes_max=1000),
)


@pytest.fixture
def intake() -> Intake:
    return Intake(CONFIG, FakeClock(NOW))


def one(content: Points | Frame) -> Point:
    assert isinstance(content, Points)
    (point,) = content.points
    return point


def frame(node: str, count: int, value: object = 1.0) -> bytes:
    points = [Point(node=node, type="t", time=n, value=value) for n in range(count)]  # type: ignore[arg-type]
    return encode_frame(points, epoch=0, seq=0)


@pytest.mark.parametrize(
    ("payload", "value"),
    [
        ("81.2", 81.2),
        ("-0.0", -0.0),
        ("7", 7.0),
        (" 7 \n", 7.0),
        ('"N"', "N"),
        ('""', ""),
        ('{"value": 81.2}', 81.2),
        ('{"value": 9007199254740993}', 9007199254740993),
        ("9007199254740992", 9007199254740992.0),
        ("-9007199254740993", -9007199254740993),
        ("18446744073709551615", 2**64 - 1),
        ("0.12345678901234567891", 0.12345678901234568),
        ("1e20", 1e20),
        ("-0", -0.0),
        ('{"value": -0, "time": 5}', -0.0),
        ('{"value": -0, "dtype": "int64"}', 0),
        ("true", 1.0),
        ('{"value": false}', 0.0),
        ('{"value": "NaN", "dtype": "float64"}', float("nan")),
        ('{"value": "AQI=", "dtype": "bytes"}', b"\1\2"),
        ('{"value": 9007199254740993, "dtype": "int64"}', 9007199254740993),
        ('{"value": 18446744073709551615, "dtype": "int64"}', 2**64 - 1),
        ('{"value": 5, "dtype": "float64"}', 5.0),
        ('{"value": "é", "dtype": "text"}', "é"),
        ('{"value": {"a": [1, null]}, "dtype": "json"}', Opaque(6, b'{"a":[1,null]}')),
        ('{"value": null, "dtype": "json"}', Opaque(6, b"null")),
    ],
)
def test_values(intake: Intake, payload: str, value: object) -> None:
    found = one(intake.parse("app.battery.soc", payload.encode())).value
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("subject", "series"),
    [
        ("app.battery.soc", ("battery", "soc", "")),
        ("app.battery.soc.cell-1", ("battery", "soc", "cell-1")),
        ("app.battery.soc.%", ("battery", "soc", "")),
        ("app.a%2Eb.gyro%5B0%5D.%C3%A9", ("a.b", "gyro[0]", "é")),
    ],
)
def test_subjects(intake: Intake, subject: str, series: tuple[str, str, str]) -> None:
    for _ in range(2):  # the second time from the cache
        point = one(intake.parse(subject, b"1"))
        assert (point.node, point.type, point.key) == series


@pytest.mark.parametrize(
    ("text", "time"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2023-11-14T22:13:20.123456789Z", 1_700_000_000_123_456_789),
        ("2023-11-14t22:13:20.5z", 1_700_000_000_500_000_000),
        ("2023-11-15 00:13:20+02:00", 1_700_000_000_000_000_000),
        ("1969-12-31T23:59:59.000000001Z", -999_999_999),
        ("2023-11-14T22:13:20.1234567891Z", 1_700_000_000_123_456_789),
    ],
)
def test_rfc3339_times_are_exact(intake: Intake, text: str, time: int) -> None:
    payload = json.dumps({"value": 1, "time": text}).encode()
    assert one(intake.parse("app.a.b", payload)).time == time


@given(st.datetimes(), st.integers(0, 999_999_999))
def test_rfc3339_agrees_with_datetime(moment: object, nanos: int) -> None:
    from datetime import UTC, datetime

    assert isinstance(moment, datetime)
    whole = moment.replace(microsecond=0, tzinfo=UTC)
    text = f"{whole:%Y-%m-%dT%H:%M:%S}.{nanos:09}Z".rjust(30, "0")
    expected = round((whole - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()) * 10**9 + nanos
    if -(2**63) <= expected < 2**63:
        assert time_ns_of(text) == expected
    else:
        with pytest.raises(ValueError, match="64 bits"):
            time_ns_of(text)


def test_a_missing_time_is_stamped_at_ms(intake: Intake) -> None:
    assert one(intake.parse("app.a.b", b"1")).time == 1_700_000_000_123_000_000


def test_a_given_time_is_kept_to_the_ns(intake: Intake) -> None:
    assert one(intake.parse("app.a.b", b'{"value": 1, "time": -5}')).time == -5


def test_live(intake: Intake) -> None:
    content = intake.parse("app.a.b", b'{"value": 1, "lane": "live"}')
    assert isinstance(content, Points)
    assert content.live


@pytest.mark.parametrize(
    ("subject", "payload", "code", "words"),
    [
        ("app.a.b", b"{", "bad_json", "not JSON"),
        ("app.a.b", b"", "bad_json", "not JSON"),
        ("app.a.b", b"\xff\xfe", "bad_json", "not JSON"),
        ("app.a.b", b"nan", "bad_json", "not JSON"),
        ("app.a.b", b'"\xff"', "bad_json", "not JSON"),
        ("app.a.b", b"[" * 500 + b"]" * 500, "bad_value", "list"),
        ("app.a.b", b"{}", "bad_value", 'no "value"'),
        *[
            ("app.a.b", digits, "bad_value", "quotes")
            for digits in (
                b"9" * 310,
                b"9" * 1500,
                b"18446744073709551616",
                b"-9223372036854775809",
            )
        ],
        ("app.a.b", b'{"value": [18446744073709551616], "dtype": "json"}', "bad_value", "quotes"),
        ("app.a.b", b"[" * 900 + b"]" * 900, "bad_value", "levels"),
        ("app.a.b", b"[NaN]", "bad_json", "NaN is no number"),
        ("app.a.b", b'{"value": 1, "value": 2}', "bad_json", "'value' is in it twice"),
        ("app.a.b", b'{"value": {"a": 1, "a": 2}, "dtype": "json"}', "bad_json", "twice"),
        ("app.a.b", b'{"value": true, "dtype": "int64"}', "bad_value", "int64"),
        ("app.a.b", b'{"value": 1, "dtype": ""}', "bad_field", "float64, int64"),
        ("app.a.b", b"null", "bad_value", "null"),
        ("app.a.b", b"[1]", "bad_value", "list"),
        ("app.a.b", b'{"value": {}}', "bad_value", "object"),
        ("app.a.b", b'{"value": 1e999}', "bad_value", "range"),
        ("app.a.b", b'{"value": 1.5, "dtype": "int64"}', "bad_value", "int64"),
        ("app.a.b", b'{"value": 18446744073709551616, "dtype": "int64"}', "bad_value", "int64"),
        ("app.a.b", b'{"value": "x", "dtype": "float64"}', "bad_value", "float64"),
        ("app.a.b", b'{"value": 1, "dtype": "float32"}', "bad_field", "float64, int64"),
        ("app.a.b", b'{"value": 1, "dtype": 5}', "bad_field", "dtype"),
        ("app.a.b", b'{"value": 1, "lane": "fast"}', "bad_field", "live"),
        ("app.a.b", b'{"value": 1, "tiem": 5}', "bad_field", "tiem"),
        ("app.a.b", b'{"value": 1, "time": 1.5}', "bad_time", "time"),
        ("app.a.b", b'{"value": 1, "time": null}', "bad_time", "time"),
        ("app.a.b", b'{"value": 1, "time": true}', "bad_time", "time"),
        ("app.a.b", b'{"value": 1, "time": 9223372036854775808}', "bad_time", "64 bits"),
        ("app.a.b", b'{"value": 1, "time": "2023-11-14T22:13:20"}', "bad_time", "RFC 3339"),
        ("app.a.b", b'{"value": 1, "time": "2023-13-14T22:13:20Z"}', "bad_time", "month"),
        ("app.a.b", b'"' + b"x" * 1001 + b'"', "too_large", "1000 are allowed"),
        ("app.a.b", b'"' + b"x" * 5000 + b'"', "too_large", "1000 are allowed"),
        ("app.a.b.c.d", b"1", "bad_subject", "%2E"),
        ("app.a.b%", b"1", "bad_subject", "token"),
        ("app.a.%", b"1", "bad_subject", "empty"),
        ("app.%.b", b"1", "bad_subject", "empty"),
        ("app.%", b"1", "bad_subject", "empty"),
        ("app.a%zz", b"1", "bad_subject", "token"),
        ("app." + "n" * 300 + ".b", b"1", "bad_subject", "255"),
        ("app.a", b'{"value": 1}', "bad_subject", "JSON goes to"),
        ("app.a", b'{"value": 1, "soc": 2}', "bad_subject", "JSON goes to"),
        ("app.a", b"{}", "bad_subject", "JSON goes to"),
        ("app.a", b'{"time": 5}', "bad_subject", "JSON goes to"),
        ("app.a", b'[{"soc": 1}]', "bad_subject", "JSON goes to"),
        ("app.a", b'{"soc": 1, "soc": 2}', "bad_json", "'soc' is in it twice"),
        ("app.a", b'{"soc": 1, "soc.%": 2}', "bad_field", "twice"),
        ("app.a", b'{"soc": 1, "cell": null}', "bad_value", "'cell': a null"),
        ("app.a", b'{"soc": 1, "cell": [1]}', "bad_value", "'cell': a list"),
        ("app.a", b'{"soc": 1, "cell": {"1": 3.7}}', "bad_value", "'cell': an object"),
        ("app.a", b'{"soc": {"value": 1, "dtype": 5}}', "bad_value", "'soc'"),
        ("app.a", b'{"a": 1, "soc": {"value": 1, "dtype": "int8"}}', "bad_field", "int64"),
        ("app.a", b'{"soc": 1e999}', "bad_value", "range"),
        ("app.a", b'{"soc": NaN}', "bad_json", "NaN"),
        ("app.a", b'{"soc": ' + b"9" * 310 + b"}", "bad_value", "310 digits"),
        ("app.a", b'{"soc": 1, "time": 12.5}', "bad_time", "time"),
        ("app.a", b'{"soc": 1, "time": 99999999999999999999}', "bad_time", "20 digits"),
        ("app.a", b'{"soc": 1, "lane": "fast"}', "bad_field", "live"),
        ("app.a", b'{"soc": 1, "time": 5, "clock": "best"}', "bad_field", "system"),
        ("app.a", b'{"state of charge": 1}', "bad_field", "state%20of%20charge"),
        ("app.a", b'{"soc": 1, "": 2}', "bad_field", "subject"),
        ("app.a", b'{"soc": 1, "a.b.c": 2}', "bad_field", "subject"),
        ("app.a", b'{"soc": 1, ">": 2}', "bad_field", "subject"),
        ("app.a", b'{"soc": 1, "t": "' + b"x" * 1001 + b'"}', "too_large", "'t'"),
        ("app.a", b'{"soc": "' + b"x" * 20_000 + b'"}', "too_large", "bytes"),
        (
            "app.a",
            b"{" + b",".join(b'"%d":1' % n for n in range(1001)) + b"}",
            "too_large",
            "1000",
        ),
        ("app.a", b"", "bad_frame", "too few"),
        ("app.a", b"x" * 100, "bad_frame", "version"),
        ("app.a", b"x" * 3000, "too_large", "2048"),
        ("app.a", frame("a", 1, "x" * 20_000), "too_large", "before compression"),
        ("app.a", frame("b", 3), "bad_frame", "node"),
        ("app.a", frame("a", 3)[:-1], "bad_frame", ""),
        ("app.a", encode_point(Point("a", "b", 1, 1.0), epoch=0, seq=0), "bad_frame", "point"),
    ],
)
def test_refusals(intake: Intake, subject: str, payload: bytes, code: str, words: str) -> None:
    with pytest.raises(RefusedError) as caught:
        intake.parse(subject, payload)
    assert caught.value.code == code
    assert words in caught.value.message


def test_several_readings_in_one_message(intake: Intake) -> None:
    payload = b"""\n {"soc": 81.2, "charging": true, "cell.1": 3.7, "a%2Eb": "x", "min": -0,
        "count": {"value": 7, "dtype": "int64"}, "big": 9007199254740993, "time": 5, "lane": "live"}"""
    content = intake.parse("app.battery", payload)
    assert isinstance(content, Points)
    assert (content.node, content.live) == ("battery", True)
    assert {point.time for point in content.points} == {5}
    assert {point.node for point in content.points} == {"battery"}
    found = {(point.type, point.key): point.value for point in content.points}
    wanted = {
        ("soc", ""): 81.2,
        ("charging", ""): 1.0,
        ("cell", "1"): 3.7,
        ("a.b", ""): "x",
        ("min", ""): -0.0,
        ("count", ""): 7,
        ("big", ""): 9007199254740993,
    }
    assert repr(found) == repr(wanted)


def test_several_readings_are_stamped_once_and_alike(intake: Intake) -> None:
    content = intake.parse("app.battery", b'{"soc": 1, "volt": 2}')
    assert isinstance(content, Points)
    assert [point.time for point in content.points] == [1_700_000_000_123_000_000] * 2
    assert not content.live


@given(st.dictionaries(st.text(max_size=8), st.text(max_size=3) | st.integers() | st.booleans()))
def test_no_name_of_a_reading_says_another_node(readings: dict[str, object]) -> None:
    intake = Intake(CONFIG, FakeClock())
    with contextlib.suppress(RefusedError):
        content = intake.parse("app.battery", json.dumps(readings).encode())
        assert {point.node for point in content.points} == {"battery"}  # type: ignore[union-attr]


@given(st.text(alphabet="ab.%2E*> \x00é", max_size=12), st.binary(max_size=60))
def test_hostile_input_is_only_ever_refused(tail: str, payload: bytes) -> None:
    intake = Intake(CONFIG, FakeClock())
    for data in (
        payload,
        b'{"value": ' + payload,
        b'"' + payload + b'"',
        frame("a", 2) + payload,
        b'{"a": ' + payload + b"}",
    ):
        with contextlib.suppress(RefusedError):
            intake.parse(f"app.{tail}", data)


def test_a_large_batch_passes_through_untouched(intake: Intake) -> None:
    data = frame("a", 5)
    assert intake.parse("app.a", data) == Frame("a", data, 5, (0, 4))


@pytest.mark.parametrize(
    ("bomb", "points"),
    [(points_bomb(0, points=30_000, node="a"), 30_000), (text_bomb(0, node="a"), 400)],
)
def test_a_batch_that_comes_to_more_than_an_agent_writes_becomes_several(
    bomb: bytes, points: int
) -> None:
    """Below the limits of what may be handed over, and thousands of times its size: all of it is kept."""
    intake = Intake(Config(device=DeviceConfig(id="VID-001", token="tok")), FakeClock(NOW))
    content = intake.parse("app.a", bomb)
    assert isinstance(content, Frame)
    assert (content.points, len(content.rest) >= 2) == (points, True)
    plan = Framer(FrameConfig()).plan([content], 0.0)
    messages = [message.body for message in plan.changes.messages]
    assert [point for body in messages for point in decode(body).points] == decode(bomb).points
    assert max(survey(body).n for body in messages) <= FRAME_POINTS_MAX
    assert max(survey(body).size for body in messages) <= FRAME_EXPANDED_MAX
    assert [message.times for message in plan.changes.messages] == [
        (found.t_lo, found.t_hi) for found in map(survey, messages)
    ]


def test_a_small_batch_is_taken_apart(intake: Intake) -> None:
    content = intake.parse("app.a", frame("a", 4))
    assert isinstance(content, Points)
    assert [point.time for point in content.points] == [0, 1, 2, 3]


def test_few_points_with_large_values_pass_through(intake: Intake) -> None:
    noise = random.Random(1).randbytes(1500)
    content = intake.parse("app.a", frame("a", 1, noise))
    assert isinstance(content, Frame)
