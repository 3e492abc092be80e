"""What the hub makes of what it sees: each condition found, and gone when its reason is."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_codec.assurance.vehicle_conditions import KINDS as VEHICLE_KINDS
from backhaul_codec.protocol.history import Alive, JobStand
from backhaul_codec.protocol.vehicle_report import VehicleReport
from backhaul_hub.cli.server.status import lines
from backhaul_hub.config import Health
from backhaul_hub.health.conditions import KINDS, OF_VEHICLES
from backhaul_hub.health.judge import DeviceFacts, HealthFacts, HubHealth, LaneFacts
from backhaul_hub.streams.replicas import Damage
from backhaul_hub.vehicles.core import Told
from backhaul_hub.vehicles.identities import Evidence, Sighting

if TYPE_CHECKING:
    from backhaul_codec.assurance.conditions import Condition

S = 1_000_000_000
DOCS = Path(__file__).parents[2] / "docs" / "health.md"


def stream(name: str = "TWIN_STATE", **state: Any) -> dict[str, Any]:
    return {
        "config": {"name": name, "max_bytes": 1000},
        "state": {"bytes": 10, "last_seq": 5, "consumer_count": 0} | state,
    }


def up(silent_s: float = 0.5, **state: Any) -> dict[str, Any]:
    """Return the info of an UP stream that heard its relay so long ago."""
    relay = {"name": "RELAY_00", "active": int(silent_s * 1e9), "lag": 0}
    return stream("UP_00", **state) | {"sources": [relay]}


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

    def look(self, facts: HealthFacts, after_s: float = 1.0) -> list[Condition]:
        self.now_s += after_s
        self.health.look(facts, self.now_s, int(self.now_s * S))
        return self.health.conditions.shown()

    def codes(self, facts: HealthFacts, after_s: float = 1.0) -> list[str]:
        return [each.code for each in self.look(facts, after_s)]


def test_nothing_is_wrong_with_a_healthy_hub() -> None:
    looks = Looks()
    facts = HealthFacts(
        [stream()], [consumer()], {"UP_00": 5}, {"UP_00": 3}, device(bulk=lane(), live=lane())
    )
    assert [looks.codes(facts) for _ in range(3)] == [[], [], []]


def test_a_link_that_is_up_without_an_agent_is_an_error_after_a_while() -> None:
    looks = Looks(Health())
    there, gone = (
        HealthFacts([stream()], devices={"VID-007": DeviceFacts(up=True, agent=agent)})
        for agent in (True, False)
    )
    assert looks.codes(there) == []
    assert looks.codes(gone) == []
    assert looks.codes(gone, 119) == []
    (found,) = looks.look(gone, 1)
    assert (found.code, found.device, found.severity) == ("agent-down", "VID-007", "error")
    assert "systemctl restart backhaul-agent" in found.hint
    assert looks.codes(there, 11) == []
    for facts in (DeviceFacts(up=True), DeviceFacts(up=False)):
        assert "agent-down" not in Looks().codes(
            HealthFacts([stream()], devices={"VID-007": facts})
        )


def test_what_a_vehicle_says_of_itself_is_shown_with_its_name() -> None:
    conditions = (
        ("disk-full", ""), ("ledger-filling", ""), ("publishers-refused", "bad_json"),
        ("lane-stalled", "bulk"), ("clock-unset", ""), ("link-down", ""), ("tyres-flat", "left"),
    )  # fmt: skip
    report = VehicleReport("aa", "b", "c", "9", ledger_pct=81, disk_pct=99, conditions=conditions)
    told = Told(report, 1_780_000_000 * S)
    up = Looks().look(HealthFacts([stream()], devices={"VID-007": DeviceFacts(up=True, told=told)}))
    assert {(each.code, each.about, each.detail) for each in up} == {
        ("disk-full", "", "99% of its disk"),
        ("ledger-filling", "", "81% of its ledger"),
        ("publishers-refused", "bad_json", ""),
        ("vehicle-condition", "tyres-flat left", ""),
    }
    assert {each.device for each in up} == {"VID-007"}
    theirs = [each for each in up if each.code != "vehicle-condition"]
    assert all(each.title.startswith("on the vehicle: ") for each in theirs)
    for gone in (DeviceFacts(up=False, told=told), DeviceFacts(up=True, agent=False, told=told)):
        down = Looks().look(HealthFacts([stream()], devices={"VID-007": gone}))
        (full,) = [each for each in down if each.code == "disk-full"]
        assert full.detail == "99% of its disk, said 2026-05-28 20:26 UTC"


def test_every_condition_of_a_vehicle_is_one_here_or_judged_here() -> None:
    here = {kind.code for kind in (*KINDS, *OF_VEHICLES)}
    assert {kind.code for kind in VEHICLE_KINDS} <= here
    assert {kind.code for kind in OF_VEHICLES} & {kind.code for kind in KINDS} == set()


def test_two_machines_of_one_identity_are_named_with_their_addresses() -> None:
    one = Sighting("aaaa", "a1", "r1", "1.0", "10.0.0.1", 1, 2)
    other = Sighting("bbbb", "b1", "r2", "1.0", "10.9.9.9", 1, 2)
    facts = device()
    for kind, code in (("alternate", "two-machines"), ("changed", "machine-changed")):
        evidence = Evidence(kind, 1, 2, one, other)  # type: ignore[arg-type]
        facts = {"VID-007": DeviceFacts(up=True, identity=evidence)}
        (found,) = Looks().look(HealthFacts([stream()], devices=facts))
        assert (found.code, found.device) == (code, "VID-007")
        for word in ("aaaa", "bbbb", "10.0.0.1", "10.9.9.9"):
            assert word in found.detail
    (fork,) = Looks().look(
        HealthFacts([stream()], devices={
            "VID-007": DeviceFacts(up=True, identity=Evidence("fork", 1, 2, None, None, "seq 7"))
        })
    )  # fmt: skip
    assert "VID-007" in fork.detail
    assert "; seq 7; no second machine was heard" in fork.detail


def test_streams_over_their_limits() -> None:
    looks = Looks()
    assert looks.codes(HealthFacts([stream(bytes=800)])) == []
    (full,) = looks.look(HealthFacts([stream(bytes=801)]))
    assert (full.code, full.about, full.detail) == (
        "stream-full",
        "TWIN_STATE",
        "80% of 1000 bytes",
    )
    unlimited = stream(bytes=10**9)
    unlimited["config"]["max_bytes"] = -1
    assert looks.codes(HealthFacts([unlimited])) == []


def test_replicas_that_are_behind_or_away() -> None:
    looks = Looks()
    cluster = {"replicas": [{"name": "b", "current": True}, {"name": "c", "current": True}]}
    assert looks.codes(HealthFacts([stream() | {"cluster": cluster}])) == []
    cluster["replicas"][0]["current"] = False
    cluster["replicas"][1] |= {"current": False, "offline": True}
    (behind,) = looks.look(HealthFacts([stream() | {"cluster": cluster}]))
    assert (behind.code, behind.detail) == ("replica-behind", "b is behind, c is away")
    away = {"replicas": [{"name": "c", "current": True, "offline": True}]}
    assert looks.codes(HealthFacts([stream() | {"cluster": away}])) == ["replica-behind"]
    lagging = {"replicas": [{"name": "b", "current": True, "lag": 10_001}]}
    assert looks.codes(HealthFacts([stream() | {"cluster": lagging}])) == ["replica-behind"]


def test_consumers_at_the_limits_of_the_issue_and_one_beyond() -> None:
    looks = Looks()
    assert looks.codes(HealthFacts([], [consumer(10_000, 1_000)])) == []
    found = looks.look(HealthFacts([], [consumer(10_001, 1_001)]))
    assert [each.code for each in found] == ["consumer-lag", "ack-pending"]
    assert found[0].about == "TWIN_CMD/hub"


def test_the_control_plane_behind_up_hides_what_it_cannot_know_yet() -> None:
    looks = Looks()
    shard = up(last_seq=10_011)
    gap = device(bulk=lane(gaps=1))
    assert looks.codes(HealthFacts([shard], read={"UP_00": 11}, devices=gap)) == ["gap-open"]
    assert looks.codes(HealthFacts([shard], read={"UP_00": 10}, devices=gap)) == ["reader-behind"]


def test_a_shard_that_hears_nothing_of_its_relay_is_told_of() -> None:
    looks = Looks(Health())
    assert looks.look(HealthFacts([up(silent_s=4)])) == []  # it must last
    (found,) = looks.look(HealthFacts([up(silent_s=24)]), 20)
    assert (found.code, found.about) == ("shard-unfed", "UP_00")
    assert found.detail == "it has heard nothing of its relay for 24 s"
    assert "restart backhaul-hub" in found.hint
    (found,) = looks.look(HealthFacts([up() | {"sources": []}]))
    assert "does not source" in found.detail
    assert looks.look(HealthFacts([up()]), 60) == []


def test_what_another_machine_may_have_is_told_with_the_command_that_closes_it() -> None:
    looks = Looks()
    lanes = {"bulk of epoch 7": lane(gaps=2)}
    away = HealthFacts([], devices={"VID-007": DeviceFacts(False, lanes=lanes, shared=True)})
    looks.look(away)
    (found,) = [each for each in looks.look(away, 60) if each.code != "link-down"]
    assert (found.code, found.device, found.about, found.detail) == (
        *("gap-of-another", "VID-007"),
        *("bulk of epoch 7", "2 stretches"),
    )
    assert "backhaul-hub one-machine" in found.hint
    alone = HealthFacts([], devices={"VID-007": DeviceFacts(True, lanes=lanes)})
    looks.look(alone)
    assert looks.codes(alone, 60) == ["gap-open"]


def test_a_certificate_is_told_of_in_its_last_month() -> None:
    looks = Looks()
    until = datetime.fromtimestamp(30 * 86_400 + 10, UTC)
    facts = HealthFacts(
        [], certificates={"hub, leaf port": until, "CN=other": until + timedelta(days=1)}
    )
    assert looks.codes(facts, 9) == []
    (found,) = looks.look(facts, 2)
    assert (found.code, found.about) == ("certificate-expires", "hub, leaf port")
    assert found.detail == "on 1970-01-31, 30 days from now"
    renewed = {"hub, leaf port": until + timedelta(days=800)}
    assert looks.codes(HealthFacts([], certificates=renewed)) == []


def test_a_vehicle_whose_frames_expand_is_named_with_the_command_that_mends_it() -> None:
    looks = Looks()
    (found,) = looks.look(HealthFacts([stream()], expanding={"VID-666": "9 bytes at once"}))
    assert (found.code, found.device, found.detail) == (
        *("frames-expand", "VID-666"),
        "9 bytes at once",
    )
    assert "backhaul-hub revoke" in found.hint


def test_garbage_is_told_for_an_hour() -> None:
    looks = Looks()
    assert looks.codes(HealthFacts([], quarantined={"UP_00": 3})) == []
    assert looks.codes(HealthFacts([], quarantined={"UP_00": 4})) == ["quarantine-grew"]
    assert looks.codes(HealthFacts([], quarantined={"UP_00": 4}), 3599) == ["quarantine-grew"]
    assert looks.codes(HealthFacts([], quarantined={"UP_00": 4})) == []


def test_a_stalled_lane_is_told_from_a_source_that_says_lag_0() -> None:
    looks = Looks()
    assert looks.codes(HealthFacts([], devices=device(bulk=lane(owes=True, lag=3)))) == []
    stands = device(bulk=lane(owes=True, lag=3), live=lane(owes=False))
    assert looks.codes(HealthFacts([], devices=stands)) == ["lane-stalled"]
    assert looks.codes(HealthFacts([], devices=device(bulk=lane(owes=True)))) == ["source-stalled"]
    moves = device(bulk=lane(owes=True, arrivals=8))
    assert looks.codes(HealthFacts([], devices=moves)) == []


def test_a_link_that_is_down_hides_what_follows_from_it() -> None:
    looks = Looks(Health(patience=1, link_down_after_s=300))
    stalls = {"bulk": lane(owes=True, gaps=2, lag=3)}
    up = HealthFacts([], devices={"VID-001": DeviceFacts(True, True, stalls)})
    looks.look(up)
    looks.look(up)
    assert looks.codes(up, 60) == ["gap-open", "lane-stalled", "clock-unset"]
    down = HealthFacts([], devices={"VID-001": DeviceFacts(False, True, stalls)})
    assert looks.codes(down) == []
    assert looks.codes(down, 299) == []
    assert looks.codes(down) == ["link-down"]
    assert looks.codes(up, 10) == ["gap-open", "lane-stalled", "clock-unset"]


def test_a_silent_server_hides_what_it_is_the_reason_for() -> None:
    looks = Looks()
    gap = device(bulk=lane(gaps=1))
    assert looks.codes(HealthFacts([], devices=gap)) == ["gap-open"]
    assert looks.codes(HealthFacts(None, devices=gap)) == ["jetstream-silent"]
    assert looks.codes(HealthFacts([], devices=gap)) == ["gap-open"]


def test_people_see_the_hub_first_and_one_line_a_device() -> None:
    looks = Looks()
    shown = looks.look(
        HealthFacts([stream(bytes=999)], devices=device(unset=True, bulk=lane(gaps=2)))
    )
    answer: dict[str, Any] = {
        "devices": 1, "connected": 1, "looked_ns": 1, "time_ns": 61 * S, "counts": {},
        "conditions": json.loads(json.dumps([each.as_json() for each in shown])),
        "conditions_not_shown": 0,
    }  # fmt: skip
    text = lines(answer)
    assert text[0] == "1 devices, 1 connected"
    assert text[1].startswith("warning stream-full TWIN_STATE, a stream is nearly full")
    assert text[3] == "VID-001: error gap-open bulk (2 stretches), warning clock-unset"
    assert [line.split(":")[0].strip() for line in text[4:]] == [
        *("what to do", "gap-open", "clock-unset")
    ]
    assert lines(answer | {"conditions": []})[-1] == "all is well"


def test_a_clock_that_was_set_is_told_with_what_follows_from_it() -> None:
    looks = Looks()
    facts = DeviceFacts(True, clock_step_ns=86_400 * S, heads_differ=True, heads_ahead_ns=7 * S)
    shown = looks.look(HealthFacts([], devices={"VID-001": facts}))
    assert {(each.code, each.device, each.detail) for each in shown} == {
        ("hub-clock-doubted", "VID-001", "by +86400.0 s"),
        ("heads-differ", "VID-001", ""),
        ("heads-ahead", "VID-001", "by 7 s"),
    }
    (step, *rest) = looks.look(HealthFacts([], devices={"VID-001": facts}, clock_step="by +5.0 s"))
    assert (step.code, step.detail) == ("hub-clock-step", "by +5.0 s")
    assert "hub-clock-doubted" not in {each.code for each in rest}, "the hub says it itself"


def test_a_server_of_history_that_is_silent_is_told_after_a_while() -> None:
    looks, silent = Looks(Health()), HealthFacts([], history="NoRespondersError()")
    assert looks.codes(silent) == []
    (found,) = looks.look(silent, 31)
    assert (found.code, found.detail) == ("history-silent", "NoRespondersError()")
    assert "backhaul-spark serve-history" in found.hint
    assert looks.codes(HealthFacts([]), 31) == []


def test_a_job_that_stands_still_is_told_and_one_that_works_is_not() -> None:
    looks = Looks(Health(job_still_s=60))

    def stands(*jobs: JobStand) -> HealthFacts:
        return HealthFacts([], alive=Alive(1, jobs))

    at_work = JobStand("ingest", 5000, 59), JobStand("twin", None, 900), JobStand("rollup", 0, 0)
    assert looks.codes(stands(*at_work)) == []
    (found,) = looks.look(stands(*at_work, JobStand("rollup", 1234, 600)))
    assert (found.code, found.about) == ("job-still", "rollup")
    assert found.detail == "1,234 behind for 10 min"


def test_a_server_that_is_damaged_off_or_wrong_about_the_time_is_named() -> None:
    lacking = [Damage("b", stream, 1171, leads=False, held_by="c") for stream in ("UP_00", "DICT")]
    facts = HealthFacts([], damages=lacking, off={"c"}, server_clocks={"a": 7200.4})
    assert {(each.code, each.about, each.detail) for each in Looks().look(facts)} == {
        *(
            ("replica-damaged", "b", f"{lacks('UP_00')}, {lacks('DICT')}"),
            ("server-off", "c", ""),
            ("server-clock", "a", "by +7200 s"),
        )
    }


def lacks(stream: str) -> str:
    return f"1,171 messages of {stream} that c has"


def test_every_code_is_in_the_manual_with_its_severity() -> None:
    page = DOCS.read_text().partition("## On the vehicle")[0]
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\w+) \|", page, re.MULTILINE)
    assert {(kind.code, str(kind.severity)) for kind in KINDS} == set(rows)
