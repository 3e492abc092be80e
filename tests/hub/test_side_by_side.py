"""Two servers' streams compared: which of the messages that one lacks is the newest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_hub.migrate import compare as side_by_side
from backhaul_hub.migrate.compare import SideBySide
from backhaul_hub.nats.stream_reader import Stored

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backhaul_hub.nats.jetstream import Json

S = 1_000_000_000
DAY_S = 86_400


class Reader:
    """Stands for a stream of large messages: of a batch come three at most, as they have 16 MB."""

    def __init__(self, stored: Iterable[Stored]) -> None:
        self._stored = list(stored)

    async def read(self, seq: int, messages_max: int) -> list[Stored]:
        return [each for each in self._stored if each.seq >= seq][: min(3, messages_max)]


def info(first: int, last: int) -> Json:
    return {
        "config": {"max_age": DAY_S * S},
        "state": {"first_seq": first, "last_seq": last, "messages": 1, "bytes": 1},
        "created": "",
        "ts": "1970-01-11T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("young", "said"),
    [([], ""), ([7], "it begins at sequence 9, not 1"), ([8], "it begins at sequence 9, not 1")],
    ids=["aged", "one before the last", "the last"],
)
async def test_the_newest_that_is_missing_is_found_where_a_read_ends_early(
    young: list[int], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What stands at 9 and above is there.
    stored = [
        Stored(seq, "up.x", b"", (10 * DAY_S - 60 if seq >= min(young, default=9) else 1) * S)
        for seq in range(1, 13)
    ]
    monkeypatch.setattr(side_by_side, "StoredReader", lambda *_: Reader(stored))
    side = SideBySide("UP_00", None, None, None, None)  # type: ignore[arg-type]
    assert await side._front_differs(info(1, 12), info(9, 12)) == said
