"""The position in IN: goes on where it was, starts over where the stream may be another."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backhaul_agent.downlink.position import Cursor, hub_place
from backhaul_runtime.jetstream import StreamMessage


def message(seq: int, hub_seq: int = 0, identity: str = "made1") -> StreamMessage:
    header = f"Nats-Stream-Source: DOWN_00 {hub_seq} in.V.> > in.V.p.a.b.% {identity}"
    headers = f"NATS/1.0\r\n{header}\r\n\r\n".encode() if hub_seq else b""
    return StreamMessage(seq, "p.a.b.%", b"", headers)


def opened(last_seq: int = 100) -> Cursor:
    cursor = Cursor()
    assert cursor.open("monday", "run1", last_seq)
    return cursor


def test_reading_goes_on_after_a_restart_of_the_agent() -> None:
    cursor = opened()
    assert cursor.next_seq == 1
    assert cursor.read(message(7, 9))
    again = Cursor(cursor.stored())
    assert not again.open("monday", "run1", 100)
    assert again.next_seq == 8
    assert again.position == cursor.position


@pytest.mark.parametrize(
    ("created", "server", "last_seq"),
    [("tuesday", "run1", 100), ("monday", "run2", 100), ("monday", "run1", 6)],
)
def test_a_stream_that_may_be_another_is_read_from_its_start(
    created: str, server: str, last_seq: int
) -> None:
    cursor = opened()
    cursor.read(message(7, 9))
    assert cursor.open(created, server, last_seq)
    assert cursor.next_seq == 1


def test_after_a_power_cut_only_what_the_hub_sent_since_is_new() -> None:
    """IN 6, 7 were lost; 6 came again, what was 7 is superseded, and 7 now is something new."""
    cursor = opened()
    for seq, hub_seq in ((5, 15), (6, 16), (7, 17)):
        assert cursor.read(message(seq, hub_seq))
    cursor.open("monday", "run2", 8)
    assert [cursor.read(message(seq, hub)) for seq, hub in ((5, 15), (6, 16), (7, 18))] == [
        False, False, True,
    ]  # fmt: skip


def test_a_new_stream_at_the_hub_is_new_whatever_its_sequences() -> None:
    cursor = opened()
    cursor.read(message(1, 50))
    assert cursor.read(message(2, 1, "made2"))
    assert not cursor.read(message(3, 1, "made2"))


def test_without_a_header_everything_counts_as_new() -> None:
    cursor = opened()
    assert cursor.read(message(1))
    cursor.open("monday", "run2", 1)
    assert cursor.read(message(1))


@given(st.text())
def test_a_stored_position_that_cannot_be_read_means_from_the_start(stored: str) -> None:
    cursor = Cursor(stored)
    cursor.open("monday", "run1", 0)
    assert cursor.next_seq == 1


@given(st.binary())
def test_no_header_can_break_the_reader(headers: bytes) -> None:
    hub_place(headers)
    hub_place(b"Nats-Stream-Source:" + headers)


def test_short_headers_of_older_servers_are_understood() -> None:
    assert hub_place(b"NATS/1.0\r\nNats-Stream-Source: DOWN 3\r\n\r\n") == ("DOWN ", 3)
    assert hub_place(b"NATS/1.0\r\nNats-Stream-Source: DOWN x\r\n\r\n") == ("", 0)
