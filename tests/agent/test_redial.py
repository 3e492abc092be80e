"""A leaf server that has stopped to dial: found, told, and restarted no more often than is sensible."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from backhaul_agent.leaf import dial_check
from backhaul_agent.leaf.redial import SHOWN_S, DialLook, Redial, does_not_dial

if TYPE_CHECKING:
    from pathlib import Path


def down(redial: Redial, now_s: float) -> None:
    redial.note(up=False, wanted=True, now_s=now_s)


def test_a_link_that_is_down_for_long_and_wanted_is_suspect() -> None:
    redial = Redial(300.0)
    down(redial, 0.0)
    down(redial, 299.0)
    assert not redial.suspect(299.0)
    assert redial.suspect(300.0)
    redial.note(up=None, wanted=True, now_s=301.0)  # the server is started again
    down(redial, 302.0)
    assert not redial.suspect(600.0)
    redial.note(up=False, wanted=False, now_s=700.0)
    assert not redial.suspect(700.0)
    never = Redial(0.0)
    down(never, 0.0)
    assert not never.suspect(1e6)


def test_each_restart_in_vain_makes_the_next_wait_longer() -> None:
    redial, now_s, waits = Redial(300.0), 0.0, []
    for _ in range(6):
        began_s = now_s
        down(redial, now_s)
        while not redial.found("why", now_s):
            now_s += 10.0
        waits.append(now_s - began_s)
    assert waits == [300.0, 600.0, 1200.0, 2400.0, 3600.0, 3600.0]
    redial.note(up=True, wanted=True, now_s=now_s)
    down(redial, now_s)
    assert redial.suspect(now_s + 300.0)


def test_it_is_told_for_a_while_also_when_the_link_is_up_again() -> None:
    redial = Redial(1.0)
    down(redial, 0.0)
    assert redial.found("it answers", 1.0)
    redial.note(up=True, wanted=True, now_s=2.0)
    assert redial.status(2.0)["redial"]["not_dialing"] == "it answers"
    assert redial.status(1.0 + SHOWN_S)["redial"]["not_dialing"] == ""


DIALED = "[7] 2026/01/01 [ERR] Error trying to connect as leafnode to remote server (attempt 9)"


@pytest.mark.parametrize(
    ("look", "yes", "word"),
    [
        (DialLook("tls://hub:7422", "", still_down=True, looked_s=15.0), True, "has not dialled"),
        (DialLook("tls://hub:7422", "[WRN] slow", still_down=True, looked_s=15.0), True, "answers"),
        (DialLook("tls://hub:7422", DIALED, still_down=True, looked_s=15.0), False, "tries why"),
        (DialLook("tls://hub:7422", " lid:6 - ", still_down=True, looked_s=15.0), False, "dials"),
        (DialLook("tls://hub:7422", None, still_down=True, looked_s=15.0), False, "cannot be read"),
        (DialLook("tls://hub:7422", "", still_down=False, looked_s=15.0), False, "has its link"),
        (DialLook("", "", still_down=True, looked_s=15.0), False, "goes on dialing"),
    ],
)
def test_only_a_server_that_could_dial_and_does_not_is_restarted(
    look: DialLook, yes: bool, word: str
) -> None:
    answer, reason = does_not_dial(look)
    assert answer is yes
    assert word in reason


async def test_a_log_that_begins_anew_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "leaf.log"
    log.write_text("old lid:1\n" * 100)
    before = dial_check._end_of(log)
    assert before is not None
    assert dial_check._since(log, before) == ""
    log.rename(tmp_path / "leaf.log.1")
    log.write_text("new lid:2\n")
    assert dial_check._since(log, before) == "new lid:2\n"
    log.unlink()
    assert dial_check._since(log, before) is None
    assert dial_check._end_of(log) is None
