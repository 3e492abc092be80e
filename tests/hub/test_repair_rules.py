"""Whether a server of a cluster may lose its store: only while all others are whole, and one leads each stream."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from backhaul_hub.streams.repair_rules import compared, last_held, missing, plan
from backhaul_hub.streams.replicas import Damage

UP, KV = "UP_00", "KV_TWIN_SHADOW"
NAMES = ("a", "b", "c")


def cluster(leader: str, late: tuple[str, ...] = ()) -> dict[str, Any]:
    replicas = [{"name": name, "current": name not in late} for name in NAMES if name != leader]
    return {"leader": leader, "replicas": replicas}


def stream(name: str, leader: str, **config: Any) -> dict[str, Any]:
    return {
        "name": name,
        "cluster": cluster(leader),
        "config": {"num_replicas": 3, "storage": "file", "retention": "limits"} | config,
        "state": {"first_seq": 1, "last_seq": 100, "messages": 100},
    }


def answer(server: str) -> dict[str, Any]:
    streams = [stream(UP, "a"), stream(KV, "b", max_msgs_per_subject=1)]
    return {
        "server": {"name": server},
        "data": {
            "meta_cluster": cluster("c"),
            "account_details": [{"name": "HUB", "id": "AHUB", "stream_detail": streams}],
        },
    }


@pytest.fixture
def answers() -> dict[str, dict[str, Any]]:
    return {name: copy.deepcopy(answer(name)) for name in NAMES}


def against(answers: dict[str, dict[str, Any]], *damages: Damage, server: str = "b") -> list[str]:
    return [*plan([*answers.values()], damages, server, 3).against]


def streams(answers: dict[str, dict[str, Any]], server: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = answers[server]["data"]["account_details"][0]["stream_detail"]
    return found


def test_nothing_is_against_it_while_all_are_whole(answers: dict[str, dict[str, Any]]) -> None:
    for server in NAMES:
        assert against(answers, server=server) == []


def test_the_damage_of_that_server_alone_is_its_reason(answers: dict[str, dict[str, Any]]) -> None:
    own = Damage("b", UP, 1234, leads=False, held_by="c")
    found = plan([*answers.values()], [own], "b", 3)
    assert found.lacks == ("1,234 messages of UP_00 that c has",)
    assert not found.against
    assert found.streams == {UP: 100, KV: 100}
    assert found.accounts == ("AHUB",)


def test_another_one_that_lacks_messages_is_a_reason_against_it(
    answers: dict[str, dict[str, Any]],
) -> None:
    other = Damage("c", UP, 7, leads=False, held_by="b")
    assert against(answers, other) == ["c lacks 7 messages of UP_00, which b has"]


def test_a_server_that_is_away_or_off_is(answers: dict[str, dict[str, Any]]) -> None:
    answers["c"]["data"] |= {"disabled": True}
    assert "JetStream of c is off" in against(answers)
    del answers["c"]
    assert "of the 2 other servers only these answer: a" in against(answers)


def test_the_damaged_one_may_be_away_as_long_as_others_lead(
    answers: dict[str, dict[str, Any]],
) -> None:
    del answers["b"]
    assert against(answers) == [f"no server leads {KV} now"]
    for name in ("a", "c"):
        streams(answers, name)[1]["cluster"] = cluster("c", late=("b",))
    assert against(answers) == []


def test_a_name_that_is_none_is_refused(answers: dict[str, dict[str, Any]]) -> None:
    assert against(answers, server="d") == ["d is no server of this hub: a, b, c"]


def test_a_replica_that_is_not_current_by_its_leaders_word_is(
    answers: dict[str, dict[str, Any]],
) -> None:
    # A server that does not lead knows nothing of the others.
    streams(answers, "b")[0]["cluster"] = cluster("a", late=("c",))
    assert against(answers) == []
    streams(answers, "a")[0]["cluster"] = cluster("a", late=("c",))
    assert against(answers) == ["c does not hold all of UP_00 yet"]
    streams(answers, "a")[0]["cluster"] = cluster("a", late=("b",))
    assert against(answers) == []


def test_a_cluster_without_a_leader_is(answers: dict[str, dict[str, Any]]) -> None:
    for each in answers.values():
        each["data"]["meta_cluster"] = {"replicas": []}
    assert against(answers) == ["no server leads the cluster now"]
    answers["c"]["data"]["meta_cluster"] = cluster("c", late=("a",))
    assert against(answers) == ["a does not know of all streams yet"]


def test_a_stream_that_stands_there_alone_is(answers: dict[str, dict[str, Any]]) -> None:
    streams(answers, "b").append(stream("MINE", "", num_replicas=1))
    assert against(answers) == ["MINE stands on b alone"]
    streams(answers, "b")[-1]["config"]["storage"] = "memory"  # a stop alone takes that away
    assert against(answers) == []


def test_it_is_copied_once_it_holds_what_the_others_held(
    answers: dict[str, dict[str, Any]],
) -> None:
    wanted = last_held(answers.values(), "b")
    assert missing(answers.values(), "b", wanted) == []
    streams(answers, "b")[0]["state"] = {"first_seq": 1, "last_seq": 99, "messages": 99}
    assert missing(answers.values(), "b", wanted) == [UP]
    streams(answers, "b").clear()
    assert missing(answers.values(), "b", wanted) == [KV, UP]
    # A stream that was deleted meanwhile is waited for by nobody.
    for name in NAMES:
        streams(answers, name).clear()
    assert missing(answers.values(), "b", wanted) == []


def test_streams_of_files_and_limits_are_compared(answers: dict[str, dict[str, Any]]) -> None:
    streams(answers, "a").append(stream("QUEUE", "a", retention="workqueue"))
    streams(answers, "a").append(stream("RELAY_00", "a", storage="memory"))
    assert compared(answers.values()) == ({UP, KV}, {KV})
