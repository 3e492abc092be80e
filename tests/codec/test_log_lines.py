"""A line of the log: what is long is cut, a vehicle's token is hidden, what repeats is braked."""

from __future__ import annotations

from typing import Any

import pytest

from backhaul_codec.programs.log_lines import ITEMS_MAX, TEXT_MAX, TRACE_MAX, Brake, tidy

TOKEN = "0123456789abcdef01234567"
SHORT = "0123LkqZ7pXw4TgYd"


def tidied(**fields: Any) -> dict[str, Any]:
    return dict(tidy(None, "warning", fields))


@pytest.mark.parametrize(
    "text",
    [
        f"dlv.VID-001.{TOKEN}",
        f"$JS.VID-001.API.CONSUMER.RESET.OUT_bulk.{TOKEN}",
        f"consumer VID-001-{TOKEN}_n_battery is gone",
        f"nats: no responders for 'blobr.VID-001.{TOKEN}'",
        TOKEN,
    ],
)
def test_a_vehicles_token_stands_in_no_field(text: str) -> None:
    nested = tidied(event=text, error=ValueError(text), names=[text, {text: (text,)}])
    assert TOKEN not in str(nested)
    assert "0123****" in nested["event"]
    short = tidied(event=text.replace(TOKEN, SHORT))["event"]
    assert short == nested["event"]


@pytest.mark.parametrize(
    "word", ["ConnectionRefused", "1HGBH41JXMN109186", f"{SHORT}x", SHORT.lower()]
)
def test_a_word_or_a_number_of_a_vehicle_is_no_token(word: str) -> None:
    assert tidied(event=word)["event"] == word


def test_ids_and_digests_are_left_as_they_are() -> None:
    digest = "9f86d081" * 8
    assert tidied(id=TOKEN, token=TOKEN, digest=digest, epoch=7, ok=True, none=None) == {
        "id": TOKEN, "token": TOKEN, "digest": digest, "epoch": 7, "ok": True, "none": None,
    }  # fmt: skip


def test_what_is_long_is_cut_in_its_middle() -> None:
    fields = tidied(
        text="a" * 10_000_000, exception="first" + "x" * 100_000 + "last", many=list(range(1000))
    )
    assert len(fields["text"]) < TEXT_MAX + 50
    assert len(fields["exception"]) < TRACE_MAX + 50
    assert fields["exception"].startswith("first")
    assert fields["exception"].endswith("last")
    assert len(fields["many"]) == ITEMS_MAX


def test_what_is_nested_without_end_is_cut() -> None:
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    assert len(str(tidied(deep=deep)["deep"])) < TEXT_MAX + 50


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


class DroppedError(Exception):
    """Stands for structlog's."""


def test_a_fault_that_repeats_is_braked_and_counted() -> None:
    clock = Clock()
    brake = Brake(clock, DroppedError, burst=3, every_s=10)

    def let_through(method: str = "warning", **fields: Any) -> int:
        lines = 0
        for _ in range(100):
            try:
                found = brake(None, method, {"event": "refused", **fields})
            except DroppedError:
                continue
            lines += 1 + found.get("unlogged", 0)
        return lines

    assert let_through() == 3
    assert let_through() == 0
    assert let_through(device="VID-002") == 3, "of another it is told"
    assert let_through("info") == 100, "an audit counts on these"
    clock.now_s += 10
    # 97 and 100 were not logged; the next line says so.
    assert let_through() == 1 + 197


def test_a_fault_of_one_lane_brakes_none_of_another() -> None:
    brake = Brake(Clock(), DroppedError, burst=1)
    brake(None, "warning", {"event": "lane waits", "lane": "bulk"})
    with pytest.raises(DroppedError):
        brake(None, "warning", {"event": "lane waits", "lane": "bulk"})
    brake(None, "warning", {"event": "lane waits", "lane": "live"})


def test_the_brake_forgets_kinds_beyond_its_bound() -> None:
    brake = Brake(Clock(), DroppedError, kinds_max=10)
    for number in range(1000):
        brake(None, "error", {"event": "e", "device": str(number)})
    assert len(brake._kinds) == 10
