"""The control plane may end where its server is away, and for no other reason; nothing else may at all."""

from __future__ import annotations

import pytest

from tests.chaos.endings import ended_wrongly, last_words

CONTROL = "hub control plane"
AWAY = "backhaul-hub: no connection to the hub's nats-server at nats://x as c: OSError() (start it)"
QUIET = '{"event": "link_not_cut", "error": "nats.errors.NoRespondersError"}\n'
FULL = "backhaul-hub: hub.db: database or disk is full"


@pytest.mark.parametrize(
    "words",
    [
        AWAY,
        "backhaul-hub: no answer to $JS.API.STREAM.INFO.DOWN in 10 s",
        "backhaul-hub: UP_00: no answer in 5 s",
        "backhaul-hub: UP_00: no JetStream behind it, or no such stream",
        "backhaul-hub: no JetStream behind $JS.API.INFO (does this user belong to account HUB?)",
        "Traceback (most recent call last):\n  File x\nnats.errors.ConnectionClosedError: closed",
        "  | ExceptionGroup: of a TaskGroup\n  +-+---- 1 ----\n    | ConnectionResetError: lost\n    +--",
    ],
)
def test_the_control_plane_may_end_where_there_is_no_server(words: str) -> None:
    assert ended_wrongly([(CONTROL, QUIET + words)], hub_was_full=False) == []


@pytest.mark.parametrize(
    "words",
    [
        "Traceback (most recent call last):\n  File x\nKeyError: 'VID-001'",
        "ConnectionResetError: lost\n\nDuring handling of it\n\nTypeError: none of it",
        "backhaul-hub: another control plane runs here",
        "",
        FULL,
    ],
)
def test_the_control_plane_may_not_end_for_any_other_reason(words: str) -> None:
    assert len(ended_wrongly([(CONTROL, AWAY + "\n" + QUIET + words)], hub_was_full=False)) == 1


def test_the_control_plane_may_end_where_its_disk_was_full() -> None:
    assert ended_wrongly([(CONTROL, FULL)], hub_was_full=True) == []


def test_nothing_else_may_end_at_all() -> None:
    wrong = ended_wrongly([("VID-001 agent", "OSError: x")] * 2, hub_was_full=True)
    assert wrong == ["VID-001 agent ended by itself: OSError: x"] * 2


def test_last_words_come_after_what_was_logged() -> None:
    assert last_words(f"KeyError: 1\n{QUIET}  tail\nValueError: 2\n") == "ValueError: 2"
