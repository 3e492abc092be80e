"""What a slot is told, and when a file that failed is tried again."""

from __future__ import annotations

from pathlib import Path

import pytest

from backhaul_agent.artifacts.jobs import (
    BACKOFF_S_MAX,
    BACKOFF_S_MIN,
    SLOTS_MAX,
    FileState,
    Job,
    next_due_s,
    next_job,
    read_version,
    wishes,
)
from backhaul_codec.state.merge import Head, HeadKey, Heads

DIGEST = "0f" * 32


def job(name: str = "a") -> Job:
    return Job(name, bytes(32), Path(name))


def test_a_version_is_a_name_and_a_digest() -> None:
    assert read_version(f"fw-2.1.bin@{DIGEST}") == ("fw-2.1.bin", bytes.fromhex(DIGEST))
    assert read_version(f"fw@sha256:{DIGEST.upper()}") == ("fw", bytes.fromhex(DIGEST))


@pytest.mark.parametrize(
    "told",
    [
        "",
        "fw",
        "fw@",
        f"@{DIGEST}",
        f"fw@{DIGEST[:-1]}",
        f"../fw@{DIGEST}",
        f"a/b@{DIGEST}",
        5.0,
        b"x",
    ],
)
def test_what_is_no_version_is_refused_with_what_one_is(told: object) -> None:
    with pytest.raises(ValueError, match="is no NAME@SHA256: backhaul-hub artifact ls"):
        read_version(told)


def test_slots_are_told_by_points_of_the_node_artifact_alone() -> None:
    def head(value: str, tombstone: int = 0) -> Head:
        return Head(1, "hub", value, tombstone)

    heads = Heads(
        [
            (HeadKey("", "artifact", "firmware", ""), head("told")),
            (HeadKey("", "artifact", "firmware", "state"), head("said")),
            (HeadKey("", "artifact", "../etc", ""), head("no slot")),
            (HeadKey("", "artifact", "gone", ""), head("deleted", 1)),
            (HeadKey("", "artifact", "maps", ""), head("told too")),
            (HeadKey("gps", "artifact", "edge", ""), head("of an edge")),
            (HeadKey("", "other", "firmware", ""), head("another node")),
        ]
    )
    assert wishes(heads, ()) == {"firmware": "told", "maps": "told too"}
    assert wishes(heads, {"maps", "none"}) == {"maps": "told too"}
    many = Heads((HeadKey("", "artifact", f"s{n:03}", ""), head("x")) for n in range(100))
    assert len(wishes(many, ())) == SLOTS_MAX


def test_a_job_that_fails_waits_longer_each_time_and_up_to_a_limit() -> None:
    it, now_s, waits = job(), 100.0, []
    for _ in range(12):
        it.failed(now_s, "no", lambda: 0.5)
        assert not it.due(now_s)
        waits.append(it.not_before_s - now_s)
        now_s = it.not_before_s
        assert it.due(now_s)
    assert waits[0] == BACKOFF_S_MIN
    assert waits[1] == 2 * waits[0]
    assert waits[-1] == BACKOFF_S_MAX
    it.at_once()
    assert it.due(0.0)
    it.ready()
    assert not it.due(1e9)
    assert it.report() == {
        "state": "ready", "name": "a", "digest": bytes(32).hex(), "bytes": 0
    }  # fmt: skip


def test_one_that_fails_again_and_again_does_not_keep_others_from_their_turn() -> None:
    bad, good = job("bad"), job("good")
    assert next_job([bad, good], 0.0) is bad
    bad.failed(0.0, "no", lambda: 0.5)
    assert next_job([bad, good], 0.0) is good
    bad.at_once()
    assert next_job([bad, good], 0.0) is good
    good.ready()
    bad.failed(0.0, "no", lambda: 0.5)
    assert next_job([bad, good], 0.0) is None
    assert next_due_s([bad, good]) == bad.not_before_s
    bad.cancelled = True
    assert next_due_s([bad, good]) is None
    assert next_job([bad, good], 1e9) is None


def test_a_report_says_how_it_stands_but_no_progress() -> None:
    it = job()
    it.state, it.moved = FileState.MOVING, 5
    first = it.report()
    it.moved = 500
    assert it.report() == first
    assert first["state"] == "fetching"
    it.failed(0.0, "disk full", lambda: 0.5, "disk")
    assert (it.report()["state"], it.report()["error"]) == ("failed", "disk full")
    assert it.describe(0.0)["retry_s"] == BACKOFF_S_MIN
