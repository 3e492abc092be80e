"""A micro-batch ends where its messages come to enough before compression, and never before its first."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import peek
from backhaul_spark.nats.offsets import ReadMark, to_json
from backhaul_spark.nats.stored import StreamInfo
from backhaul_spark.source import jetstream_source as source_module
from backhaul_spark.source.jetstream_source import JetStreamStreamReader, SourceSettings
from backhaul_spark.source.weight import LOOKS, last_within
from tests.support.bombs import points_bomb
from tests.support.spark_frames import frame, stored

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

    from backhaul_spark.nats.stored import Stored

GARBAGE = b"no message"


class Stream:
    """What a stream holds by sequence, and how many were looked at."""

    def __init__(self, bodies: dict[int, bytes]) -> None:
        self.bodies = bodies
        self.read_of = 0

    def read(self, lo: int, hi: int) -> Iterator[tuple[int, bytes]]:
        for seq in sorted(self.bodies):
            if lo <= seq <= hi:
                self.read_of += 1
                yield seq, self.bodies[seq]


def raw(body: bytes) -> int:
    return len(body) if body == GARBAGE else peek(body).raw_len


FRAME = frame(1)
BOMB = points_bomb(1, points=1000)


@given(
    st.lists(st.sampled_from([FRAME, BOMB, GARBAGE, None]), min_size=1, max_size=LOOKS),
    st.integers(1, 10_000),
)
def test_as_many_as_come_to_no_more_and_one_at_least(
    bodies: list[bytes | None], size_max: int
) -> None:
    there = {seq: body for seq, body in enumerate(bodies, 5) if body is not None}
    last = last_within(5, 4 + len(bodies), size_max, Stream(there).read)
    taken = [raw(body) for seq, body in there.items() if seq <= last]
    left = [raw(body) for seq, body in there.items() if seq > last]
    assert sum(taken) <= size_max or len(taken) == 1
    if left:
        assert taken
        assert sum(taken) + left[0] > size_max


def test_of_many_honest_messages_a_few_are_looked_at() -> None:
    stream = Stream(dict.fromkeys(range(1, 10_001), FRAME))
    assert last_within(1, 10_000, 20_000 * raw(FRAME), stream.read) == 10_000
    assert stream.read_of == LOOKS


def test_a_burst_among_many_is_seen() -> None:
    bodies = dict.fromkeys(range(1, 10_001), FRAME)
    bodies |= dict.fromkeys(range(3000, 3400), BOMB)
    size_max = 10_000 * raw(FRAME) + 100 * raw(BOMB)
    last = last_within(1, 10_000, size_max, Stream(bodies).read)
    assert 3000 <= last < 3400


def test_the_source_cuts_a_batch_and_goes_on_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [BOMB] * 30

    def read_range(_: object, stream: str, lo: int, hi: int) -> Iterator[Stored]:
        assert stream == "UP_00"
        yield stored(bodies[lo - 1 : hi], first_seq=lo)

    monkeypatch.setattr(source_module, "read_range", read_range)
    settings = SourceSettings({"servers": "nats://127.0.0.1:4222", "maxBytes": str(10 * raw(BOMB))})
    info = StreamInfo("UP_00", "then", 1, 30, 30, 30_000, True, 1)
    monkeypatch.setattr(settings, "streams", lambda: {"UP_00": info})
    reader = JetStreamStreamReader(settings)
    at, ends = to_json({"UP_00": ReadMark(0, "then")}), []
    for _ in range(4):
        at = reader.latestOffset(at, reader.getDefaultReadLimit())
        ends.append(at["streams"]["UP_00"]["seq"])
    assert ends == [10, 20, 30, 30]
