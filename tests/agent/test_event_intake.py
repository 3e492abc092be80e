"""Events that programs report: what is said reaches OUT as it was said, and nothing else passes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from backhaul_agent.cli.main import cli
from backhaul_agent.commit.contents import value_class
from backhaul_agent.config import ClockConfig, Config, DeviceConfig, IngestConfig
from backhaul_agent.errors import RefusedError
from backhaul_agent.hub_time.hub_clock import HubClock
from backhaul_agent.ingest.parse import Intake
from backhaul_agent.ingest.parse_event import EventIntake
from backhaul_agent.ledger.eviction_policy import EVENT, class_of
from backhaul_agent.metered.controller import OWN_EVENTS
from backhaul_agent.stamps import stamp_ms
from backhaul_codec import Opaque, decode
from backhaul_codec.kinds import SYSTEM_KINDS
from backhaul_codec.subjects import parse_leaf
from tests.support.agent_clock import FakeClock

if TYPE_CHECKING:
    from backhaul_agent.commit.contents import Event
    from backhaul_runtime.clock import SteadyClock

CONFIG = Config(
    device=DeviceConfig(id="VID-001", token="tok"), ingest=IngestConfig(value_bytes_max=1000)
)


def intake(clock: SteadyClock | None = None) -> EventIntake:
    return EventIntake(Intake(CONFIG, clock or FakeClock()), value_bytes_max=1000)


def said(event: Event) -> tuple[int, dict[str, Any]]:
    """Return the time of an event and its JSON."""
    [point] = decode(event.message.body).points
    assert isinstance(point.value, Opaque)
    found: dict[str, Any] = json.loads(point.value.data)
    return point.time, found


@pytest.mark.parametrize(
    ("payload", "body"),
    [
        (b"", {}),
        (b" \n", {}),
        (b"{}", {}),
        (b'{"previous": "disarmed", "reason": "pilot"}', {"previous": "disarmed", "reason": "pilot"}),
        (b'{"data": null}', {"data": None}),
        (b'{"data": [1, {"a": "\xc3\xa9"}]}', {"data": [1, {"a": "\u00e9"}]}),
    ],
)  # fmt: skip
def test_what_is_said_is_kept_as_it_is(payload: bytes, body: dict[str, Any]) -> None:
    clock = FakeClock()
    event = intake(clock).parse("agent.event.armed", payload)
    assert said(event) == (stamp_ms(clock), {"kind": "armed", **body})
    assert event.message.subject == "e.app.armed"
    assert event.points == 1


def test_a_time_that_is_given_stands() -> None:
    event = intake().parse("agent.event.armed", b'{"time": "2026-05-01T12:00:00.25Z"}')
    assert said(event)[0] == 1_777_636_800_250_000_000
    assert event.message.times == (1_777_636_800_250_000_000,) * 2


def test_an_event_made_without_a_clock_waits_for_the_time_and_a_given_time_does_not() -> None:
    clock = HubClock(FakeClock(), ClockConfig(trust_system="no"))
    clock.start("boot", [])
    assert intake(clock).parse("agent.event.armed", b"").message.boot == clock.mark > 0
    assert intake(clock).parse("agent.event.armed", b'{"time": 5}').message.boot == 0


@pytest.mark.parametrize(
    ("subject", "payload", "code"),
    [
        ("agent.event.a.b", b"", "bad_subject"),
        ("agent.event.%", b"", "bad_subject"),
        ("agent.event.%61", b"", "bad_subject"),
        ("agent.event." + "a" * 300, b"", "bad_subject"),
        ("agent.event.armed", b"{", "bad_json"),
        ("agent.event.armed", b"[]", "bad_field"),
        ("agent.event.armed", b'"pilot"', "bad_field"),
        ("agent.event.armed", b'{"kind": "mark"}', "bad_field"),
        ("agent.event.armed", b'{"reason": 5}', "bad_field"),
        ("agent.event.armed", b'{"time": "noon"}', "bad_time"),
        ("agent.event.armed", b'{"time": 5, "clock": "mine"}', "bad_field"),
        ("agent.event.armed", b'{"data": "' + b"x" * 1000 + b'"}', "too_large"),
        ("agent.event.armed", b" " * 9000, "too_large"),
    ],
)
def test_every_mistake_has_its_code(subject: str, payload: bytes, code: str) -> None:
    with pytest.raises(RefusedError) as caught:
        intake().parse(subject, payload)
    assert caught.value.code == code


@pytest.mark.parametrize("kind", sorted({*SYSTEM_KINDS, "app"}))
def test_no_kind_passes_for_the_agents_own(kind: str) -> None:
    message = intake().parse(f"agent.event.{kind}", b"").message
    place = parse_leaf(message.subject)
    assert (place.letter, place.type, place.system) == ("a", kind, False)
    assert class_of(message.subject) == EVENT
    assert ".".join(message.subject.split(".")[:2]) not in OWN_EVENTS


def test_an_event_is_worth_as_much_as_events_are() -> None:
    assert value_class(intake().parse("agent.event.armed", b"")) == EVENT


def test_data_that_is_no_json_is_refused_by_the_command() -> None:
    found = CliRunner().invoke(cli, ["event", "armed", "--data", "{"])
    assert found.exit_code == 2
    assert "no JSON" in found.output
