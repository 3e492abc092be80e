"""When watermarks that wait are said beside DOWN: as if all that wait were looked at each time."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from backhaul_codec.protocol.push import TERSE
from backhaul_hub.links.beside import TERSE_S_MIN, WATERMARK_S_MIN, Beside, Said

DEVICES = ("VID-1", "VID-2")
STEPS = st.tuples(
    st.sampled_from(
        ["stored", "stored", "stored", "far", "expect", "terse", "long", "linked", "gone"]
    ),
    st.sampled_from(DEVICES),
    st.sampled_from(["bulk", "live"]),
    st.sampled_from([0.0, 1.0, 4.0, 9.0]),
)


class Plain(Beside):
    """Looks at all that wait."""

    def due(self, now_s: float) -> list[Said]:
        self._due = [(0.0, *place) for place in sorted(self._waiting)]
        return super().due(now_s)


@settings(max_examples=150, deadline=None)
@given(st.lists(STEPS, max_size=40))
def test_nothing_is_said_earlier_or_later(steps: list[tuple[str, str, str, float]]) -> None:
    ways, now_s, seq = (Beside(), Plain()), 0.0, 0
    for what, device, lane, passes_s in steps:
        now_s += passes_s
        seq += 100 if what == "far" else 1
        for beside in ways:
            match what:
                case "stored" | "far":
                    body = b'{"epoch":1,"seq":%d,"hash":"%012x"}' % (seq, seq)
                    beside.stored(f"in.{device}.s.watermark.{lane}", body, now_s)
                case "expect":
                    beside.expect(device, lane, 1, seq)
                case "terse" | "long":
                    beside.terse(device, what == "terse")
                case "linked":
                    beside.linked(device, now_s)
                case "gone":
                    beside.gone(device)
        heap, plain = (sorted(beside.due(now_s)) for beside in ways)
        assert heap == plain
    heap, plain = (sorted(beside.due(now_s + TERSE_S_MIN)) for beside in ways)
    assert heap == plain


def test_who_reads_terse_ones_no_more_does_not_wait_as_long_as_before() -> None:
    beside = Beside()
    beside.terse("VID-1", True)
    for seq in (1, 2):
        beside.stored(
            "in.VID-1.s.watermark.bulk", b'{"epoch":1,"seq":%d,"hash":"00000000000a"}' % seq, 0.0
        )
    assert beside.due(WATERMARK_S_MIN) == []
    beside.terse("VID-1", False)
    (said,) = beside.due(WATERMARK_S_MIN)
    assert not said.leaf_subject.startswith(TERSE)
