"""What the hub makes of what it sees: each condition found, and gone when its reason is."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_hub.commands.status import lines
from backhaul_hub.config import Health
from backhaul_hub.health import DeviceFacts, Facts, HubHealth, LaneFacts
from backhaul_hub.health_kinds import KINDS

if TYPE_CHECKING:
    from backhaul_codec.conditions import Condition

S = 1_000_000_000
DOCS = Path(__file__).parents[2] / "docs" / "health.md"


def stream(name: str = "TWIN_STATE", **state: Any) -> dict[str, Any]:
    return {
        "config": {"name": name, "max_bytes": 1000},
        "state": {"bytes": 10, "last_seq": 5, "consumer_count": 0} | state,
    }


def consumer(pending: int = 0, unacknowledged: int = 0) -> dict[str, Any]:
    return {
        "stream_name": "TWIN_CMD",
        "name": "hub",
        "num_pending": pending,
        "num_ack_pending": unacknowledged,
    }


def lane(*, owes: bool = False, gaps: int = 0, arrivals: int = 7, lag: int | None = 0) -> LaneFacts:
    return LaneFacts(owes, gaps, arrivals, lag)


def device(up: bool = True, *, unset: bool = False, **lanes: LaneFacts) -> dict[str, DeviceFacts]:
    return {"VID-001": DeviceFacts(up, unset, lanes)}


class Looks:
    """Looks at one hub, a second apart."""

    def __init__(self, health: Health | None = None) -> None:
        self.health = HubHealth(health or Health(patience=0))
        self.now_s = 0.0

    def look(self, facts: Facts, after_s: float = 1.0) -> list[Condition]:
        self.now_s += after_s
        self.health.look(facts, self.now_s, int(self.now_s * S))
        return self.health.conditions.shown()

    def codes(self, facts: Facts, after_s: float = 1.0) -> list[str]:
        return [each.code for each in self.look(facts, after_s)]


def test_nothing_is_wrong_with_a_healthy_hub() -> None:
    looks = Looks()
    facts = Facts(
        [stream()], [consumer()], {"UP_00": 5}, {"UP_00": 3}, device(bulk=lane(), live=lane())
    )
    assert [looks.codes(facts) for _ in range(3)] == [[], [], []]


def test_streams_over_their_limits() -> None:
    looks = Looks()
    assert looks.codes(Facts([stream(bytes=800)])) == []
    (full,) = looks.look(Facts([stream(bytes=801)]))
    assert (full.code, full.about, full.detail) == (
        "stream-full",
        "TWIN_STATE",
        "80% of 1000 bytes",
    )
    unlimited = stream(bytes=10**9)
    unlimited["config"]["max_bytes"] = -1
    assert looks.codes(Facts([unlimited])) == []


def test_replicas_that_are_behind_or_away() -> None:
    looks = Looks()
    cluster = {"replicas": [{"name": "b", "current": True}, {"name": "c", "current": True}]}
    assert looks.codes(Facts([stream() | {"cluster": cluster}])) == []
    cluster["replicas"][0]["current"] = False
    cluster["replicas"][1] |= {"current": False, "offline": True}
    (behind,) = looks.look(Facts([stream() | {"cluster": cluster}]))
    assert (behind.code, behind.detail) == ("replica-behind", "b is behind, c is away")
    away = {"replicas": [{"name": "c", "current": True, "offline": True}]}
    assert looks.codes(Facts([stream() | {"cluster": away}])) == ["replica-behind"]
    lagging = {"replicas": [{"name": "b", "current": True, "lag": 10_001}]}
    assert looks.codes(Facts([stream() | {"cluster": lagging}])) == ["replica-behind"]


def test_consumers_at_the_limits_of_the_issue_and_one_beyond() -> None:
    looks = Looks()
    assert looks.codes(Facts([], [consumer(10_000, 1_000)])) == []
    found = looks.look(Facts([], [consumer(10_001, 1_001)]))
    assert [each.code for each in found] == ["consumer-lag", "ack-pending"]
    assert found[0].about == "TWIN_CMD/hub"


def test_the_control_plane_behind_up_hides_what_it_cannot_know_yet() -> None:
    looks = Looks()
    up = stream("UP_00", last_seq=10_011)
    gap = device(bulk=lane(gaps=1))
    assert looks.codes(Facts([up], read={"UP_00": 11}, devices=gap)) == ["gap-open"]
    assert looks.codes(Facts([up], read={"UP_00": 10}, devices=gap)) == ["reader-behind"]


def test_a_certificate_is_told_of_in_its_last_month() -> None:
    looks = Looks()
    until = datetime.fromtimestamp(30 * 86_400 + 10, UTC)
    facts = Facts([], certificates={"hub, leaf port": until, "CN=other": until + timedelta(days=1)})
    assert looks.codes(facts, 9) == []
    (found,) = looks.look(facts, 2)
    assert (found.code, found.about) == ("certificate-expires", "hub, leaf port")
    assert found.detail == "on 1970-01-31, 30 days from now"
    renewed = {"hub, leaf port": until + timedelta(days=800)}
    assert looks.codes(Facts([], certificates=renewed)) == []


def test_garbage_is_told_for_an_hour() -> None:
    looks = Looks()
    assert looks.codes(Facts([], quarantined={"UP_00": 3})) == []
    assert looks.codes(Facts([], quarantined={"UP_00": 4})) == ["quarantine-grew"]
    assert looks.codes(Facts([], quarantined={"UP_00": 4}), 3599) == ["quarantine-grew"]
    assert looks.codes(Facts([], quarantined={"UP_00": 4})) == []


def test_a_stalled_lane_is_told_from_a_source_that_says_lag_0() -> None:
    looks = Looks()
    assert looks.codes(Facts([], devices=device(bulk=lane(owes=True, lag=3)))) == []
    stands = device(bulk=lane(owes=True, lag=3), live=lane(owes=False))
    assert looks.codes(Facts([], devices=stands)) == ["lane-stalled"]
    assert looks.codes(Facts([], devices=device(bulk=lane(owes=True)))) == ["source-stalled"]
    moves = device(bulk=lane(owes=True, arrivals=8))
    assert looks.codes(Facts([], devices=moves)) == []


def test_a_link_that_is_down_hides_what_follows_from_it() -> None:
    looks = Looks(Health(patience=1, link_down_after_s=300))
    stalls = {"bulk": lane(owes=True, gaps=2, lag=3)}
    up = Facts([], devices={"VID-001": DeviceFacts(True, True, stalls)})
    looks.look(up)
    looks.look(up)
    assert looks.codes(up, 60) == ["gap-open", "lane-stalled", "clock-unset"]
    down = Facts([], devices={"VID-001": DeviceFacts(False, True, stalls)})
    assert looks.codes(down) == []
    assert looks.codes(down, 299) == []
    assert looks.codes(down) == ["link-down"]
    assert looks.codes(up, 10) == ["gap-open", "lane-stalled", "clock-unset"]


def test_a_silent_server_hides_what_it_is_the_reason_for() -> None:
    looks = Looks()
    gap = device(bulk=lane(gaps=1))
    assert looks.codes(Facts([], devices=gap)) == ["gap-open"]
    assert looks.codes(Facts(None, devices=gap)) == ["jetstream-silent"]
    assert looks.codes(Facts([], devices=gap)) == ["gap-open"]


def test_people_see_the_hub_first_and_one_line_a_device() -> None:
    looks = Looks()
    shown = looks.look(Facts([stream(bytes=999)], devices=device(unset=True, bulk=lane(gaps=2))))
    answer: dict[str, Any] = {
        "devices": 1, "connected": 1, "looked_ns": 1, "time_ns": 61 * S, "counts": {},
        "conditions": json.loads(json.dumps([each.as_json() for each in shown])),
        "conditions_not_shown": 0,
    }  # fmt: skip
    text = lines(answer)
    assert text[0] == "1 devices, 1 connected"
    assert text[1].startswith("warning stream-full TWIN_STATE, a stream is nearly full")
    assert text[-1] == "VID-001: error gap-open bulk (2 stretches), warning clock-unset"
    assert lines(answer | {"conditions": []})[-1] == "all is well"


def test_every_code_is_in_the_manual_with_its_severity() -> None:
    page = DOCS.read_text().partition("## On the vehicle")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", page, re.MULTILINE)
    assert {(kind.code, str(kind.severity)) for kind in KINDS} == set(rows)
