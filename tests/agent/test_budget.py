"""What goes first when room runs out."""

from __future__ import annotations

import pytest

from backhaul_agent.budget import ACCOUNT, CONFIG, EVENT, STATE, TELEMETRY, class_of


@pytest.mark.parametrize(
    ("subject", "value_class"),
    [
        ("f.gps", TELEMETRY),
        ("p.gps.fix.%", STATE),
        ("p.gps", CONFIG),
        ("p.car.gps", CONFIG),
        ("p.car.gps.nodeType.%", CONFIG),
        ("e.crash", EVENT),
        ("r.17", EVENT),
        ("e.receipt", ACCOUNT),
        ("e.clock", ACCOUNT),
        ("n.gps.f.gps", TELEMETRY),
        ("n.gps.p.gps.fix.%", STATE),
        ("n.gps.p.gps", CONFIG),
        ("n.gps.e.crash", EVENT),
    ],
)
def test_a_subject_says_what_its_message_is_worth(subject: str, value_class: int) -> None:
    assert class_of(subject) == value_class
