"""Messages examined together: of each exactly what is said of it alone, and that they are in fact taken together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_codec import Opaque, Point, encode_bundle, encode_frame, encode_point
from backhaul_codec.bulk import small_frames
from backhaul_codec.points import JSON, SeriesName
from backhaul_codec.state.newest import newest_in, newest_time
from backhaul_codec.subjects import encode_token
from backhaul_codec.wire.dictionaries import digest_of, is_packed, pack_with
from backhaul_codec.wire.envelope import chain, restamp, unseal
from backhaul_hub.continuity import examine_many as examine_many_module
from backhaul_hub.continuity.examine import Examined, UnreadableError, examine
from backhaul_hub.continuity.examine_many import examine_many
from tests.support import strategies
from tests.support.small_bundles import bundles

if TYPE_CHECKING:
    from collections.abc import Sequence

    from backhaul_codec import Value

NOON = 1_700_000_000_000_000_000
FRAME = [
    Point("car", "soc", NOON, 81.25),
    Point("car", "count", NOON, 2**63 + 7),
    Point("car", "soc", NOON + 10**9, 81.5),
    Point("car", "volts", NOON + 10**9, 1.0000001192092896, key="cell 7"),
    Point("car", "amps", NOON + 10**9, 0.1 + 0.2),
    Point("car", "gear", NOON + 2 * 10**9, -3),
]
OTHER = [Point("car", f"t{at % 3}", at, at / 8, key="k" * (at % 2)) for at in range(20)]
DICTIONARY = b"".join(
    unseal(each)[1]
    for each in (
        encode_frame(OTHER, epoch=1, seq=1),
        encode_bundle(FRAME, epoch=1, seq=1),
        encode_frame(FRAME, epoch=1, seq=1),
    )
)
KNOWN = {("VID-001", digest_of(DICTIONARY)): DICTIONARY}
DEVICES = ["VID-001", "VID-002", "-", "VID.1"]
EVENT = Point("agent", "mark", NOON, Opaque(JSON, b'{"lanes": {"bulk": 3}, "why": "hour"}'))

plain_frames = st.builds(
    lambda times, values, clock: encode_frame(
        [
            Point("car", f"t{at % 3}", NOON + time, value, key="k" * (at % 2))
            for at, (time, value) in enumerate(zip(times, values, strict=False))
        ],
        epoch=1,
        seq=1,
        clock=clock,
    ),
    st.lists(st.integers(0, 9), min_size=8, max_size=20).map(sorted),
    st.lists(st.integers(-9, 9) | strategies.floats, min_size=8, max_size=20),
    st.integers(0, 2),
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[str, bytes]:
    """Draw a message of UP: most are as vehicles write them."""
    device = draw(st.sampled_from(DEVICES[:2] * 8 + DEVICES))
    leaf, body = draw(
        st.one_of(
            plain_frames.map(lambda body: ("f.car", body)),
            plain_frames.map(lambda body: ("n.car.f.car", body)),
            plain_frames.map(lambda body: ("p.car", body)),  # heads that hold as one
            plain_frames.map(lambda body: ("f.other", body)),
            strategies.frames(8).map(
                lambda some: (f"f.{encode_token(some[0].node)}", encode_frame(some, epoch=1, seq=1))
            ),
            bundles().map(lambda some: ("b", encode_bundle(some, epoch=1, seq=1))),
            strategies.points("n").map(
                lambda point: ("p.n.t.k", encode_point(point, epoch=1, seq=1))
            ),
            st.just(("e.mark", encode_point(EVENT, epoch=1, seq=1))),
            st.just(("x.y", b"garbage")),
        )
    )
    if leaf != "x.y":
        epoch, seq = draw(st.sampled_from([(7, 1), (7, 2), (0, 1), (7, 0), (2**32 - 1, 2**39)]))
        if draw(st.booleans()):
            body = chain(body, epoch=epoch, seq=seq, link=draw(st.binary(min_size=6, max_size=6)))
        else:
            body = restamp(body, epoch=epoch, seq=seq if seq < 2**39 else 2**62)
        if draw(st.booleans()):
            body = pack_with(body, draw(st.sampled_from([DICTIONARY, b"one that is not here"])))
    if draw(st.integers(0, 9)) == 0:
        body = draw(strategies.damaged(body))
    return f"{draw(st.sampled_from(['up'] * 9 + ['import']))}.{device}.{leaf}", body


def find(device: str, digest: bytes) -> bytes | None:
    return KNOWN.get((device, digest))


def alone(message: tuple[str, bytes]) -> object:
    try:
        return words(examine(*message, find))
    except UnreadableError as error:
        return words(error)


def words(said: Examined | UnreadableError) -> object:
    """Return all that is said of a message, but for what was read of it by the way."""
    if isinstance(said, UnreadableError):
        return type(said), vars(said), str(said)
    names = [name for name in said.__slots__ if name not in ("layout", "newest")]
    return {name: getattr(said, name) for name in names}


@given(st.lists(messages(), max_size=12))
def test_together_is_as_alone(some: list[tuple[str, bytes]]) -> None:
    together = list(examine_many(some, find, together_min=1))
    assert list(map(words, together)) == list(map(alone, some))
    for said in together:
        if isinstance(said, Examined) and said.newest is not None:
            layout = said.frame_layout()
            assert said.newest.newest_ns == newest_time(layout)
            assert said.newest.clock == layout.clock
            assert sorted(map(exact, said.newest.each())) == sorted(
                exact((SeriesName(point.node, point.type, point.key), point.time, point.value))
                for point in newest_in(layout)
            )


def exact(row: tuple[SeriesName, int, Value]) -> tuple[SeriesName, int, str, str]:
    """Return a row whose value compares bit for bit."""
    series, time, value = row
    shown = value.hex() if isinstance(value, float) else repr(value)
    return series, time, type(value).__name__, shown


@pytest.mark.parametrize("packed", [False, True])
def test_good_frames_and_bundles_are_taken_together(packed: bool) -> None:
    some = [
        (f"up.VID-{number:03}.f.car", encode_frame(FRAME, epoch=7, seq=number))
        for number in range(1, 4)
    ]
    some += [
        (
            "up.VID-001.b",
            chain(encode_bundle(FRAME, epoch=7, seq=1), epoch=7, seq=9, link=b"lin" * 2),
        )
    ]
    if packed:
        some = [
            (f"up.VID-001.{each.split('.', 2)[2]}", pack_with(body, DICTIONARY))
            for each, body in some
        ]
    assert [is_packed(body) for _, body in some] == [packed] * 4
    for said, message in zip(examine_many(some, find, together_min=1), some, strict=True):
        assert isinstance(said, Examined)
        assert said.newest is not None
        assert words(said) == alone(message)
        assert {name.type: value for name, _, value in said.newest.each()} == {
            "soc": 81.5, "count": 2**63 + 7, "volts": 1.0000001192092896, "amps": 0.1 + 0.2, "gear": -3,
        }  # fmt: skip


ODD = {
    "two at the newest time": [FRAME[0], Point("car", "soc", NOON, 3.5)],
    "times that go back": [FRAME[2], FRAME[0]],
    "the end of time": [Point("car", "soc", 2**63 - 1, 1.5)],
}


@pytest.mark.parametrize("why", ODD)
def test_what_is_not_clear_is_left_to_the_layout(why: str) -> None:
    body = encode_frame(ODD[why], epoch=7, seq=1)
    [said] = examine_many([("up.VID-001.f.car", body)], together_min=1)
    assert isinstance(said, Examined)
    assert said.newest is None
    assert said.key.epoch == 7


def test_few_messages_are_examined_alone() -> None:
    body = encode_frame(FRAME, epoch=7, seq=1)
    [said] = examine_many([("up.VID-001.f.car", body)])
    assert isinstance(said, Examined)
    assert said.newest is None


def test_many_large_ones_are_taken_together_in_parts_that_fit_the_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A frame of 200 bytes may have thousands of points: together they would take gigabytes."""
    body = encode_frame([Point("car", "soc", NOON, 1)] * 2000, epoch=7, seq=1)
    sizes = list[int]()
    read = small_frames.read_small_frames

    def note(bodies: Sequence[bytes], names: Sequence[Any], *rest: Any) -> Any:
        some = zip(bodies, names, strict=True)
        sizes.append(sum(unseal(each)[0].raw_len for each, said in some if said))
        return read(bodies, names, *rest)

    monkeypatch.setattr(examine_many_module, "read_small_frames", note)
    assert len(list(examine_many([("up.VID-001.f.car", body)] * 512))) == 512
    assert len(sizes) > 2
    assert 0 < max(sizes) <= 1 << 20
    sizes.clear()
    large = encode_frame([Point("car", "soc", NOON, 1)] * 6000, epoch=7, seq=1)
    list(examine_many([("up.VID-001.f.car", large)] * 64))
    assert sizes == [0, 0]
