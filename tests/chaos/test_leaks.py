"""Planted leaks are seen, and what a sound run holds more in the end is none."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import pytest

from tests.chaos.leaks import (
    CONSUMERS_MORE,
    DESCRIPTORS_MORE,
    MEMORY_FACTOR,
    MEMORY_MORE_BYTES,
    Held,
    Process,
    Use,
    counts,
    files,
    leaked,
    processes,
    uses,
)
from tests.support.rig.parts import Part

if TYPE_CHECKING:
    from pathlib import Path

AGENT = Process("VID-001 agent", 7, 100)
SERVER = Process("hub server", 8, 100)
MEMORY_BYTES = 60 << 20
MOST = Use(20 + DESCRIPTORS_MORE, int(MEMORY_BYTES * MEMORY_FACTOR) + MEMORY_MORE_BYTES)


def held() -> Held:
    uses = {AGENT: Use(20, MEMORY_BYTES), SERVER: Use(40, MEMORY_BYTES)}
    return Held(uses, {"hub UP_00": 3, "VID-001 IN": 0}, {"diary", "hub/hub.toml"})


def test_what_is_as_it_was_is_no_leak() -> None:
    assert leaked(held(), held()) == []


def test_what_grows_as_far_as_it_may_is_no_leak() -> None:
    after = held()
    after.uses[AGENT] = MOST
    after.consumers["hub UP_00"] += CONSUMERS_MORE
    assert leaked(held(), after) == []


@pytest.mark.parametrize(
    ("use", "said"),
    [
        (MOST._replace(descriptors=MOST.descriptors + 1), "45 descriptors, 20 before"),
        (MOST._replace(memory_bytes=MOST.memory_bytes + 1), "186 MiB, 60 before"),
    ],
)
def test_a_process_that_holds_more_is_named(use: Use, said: str) -> None:
    after = held()
    after.uses[AGENT] = use
    assert leaked(held(), after) == [f"leaked: VID-001 agent: {said}"]


def test_a_process_that_took_the_place_of_another_is_not_compared_with_it() -> None:
    after = held()
    del after.uses[AGENT]
    after.uses[AGENT._replace(started=101)] = MOST._replace(descriptors=1_000)
    assert leaked(held(), after) == []


def test_consumers_and_streams_that_stay_are_named() -> None:
    after = held()
    after.consumers |= {"hub UP_00": 4 + CONSUMERS_MORE, "VID-001 OUT_new": 0}
    assert leaked(held(), after) == [
        "leaked: VID-001 OUT_new: a stream that was not there before",
        f"leaked: hub UP_00: {4 + CONSUMERS_MORE} consumers, 3 before",
    ]


def test_files_that_stay_are_named_and_those_that_went_are_not() -> None:
    after = held()
    after.files = {"diary", "VID-001/agent.toml.tmp"}
    assert leaked(held(), after) == [
        "leaked: 1 files that were not there before: VID-001/agent.toml.tmp"
    ]


def test_counts_say_how_much_was_compared_and_the_worst_of_it() -> None:
    after = held()
    after.uses[AGENT] = Use(23, MEMORY_BYTES + (5 << 20), 1_800.0)
    after.consumers["hub UP_00"] += 1
    after.files.add("x")
    assert counts(held(), after) == (
        "leaks: 2 processes lived through, for 0 to 1,800 s, at most +3 descriptors and +5 MiB (VID-001 agent); "
        "2 streams, +1 consumers; 3 files, +1"
    )


def test_what_stores_are_made_of_is_no_file_of_a_run(tmp_path: Path) -> None:
    for name in (
        "hub/jetstream/jetstream/A/streams/UP/msgs/1.blk", "hub/hub.db-wal", "hub/hub.toml",
        "VID-001/backhaul-leaf/x", "VID-001/backhaul-agent/ledger.db.reserve", "VID-001/agent.toml.tmp",
    ):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert files(tmp_path) == {"hub/hub.toml", "VID-001/agent.toml.tmp"}


def test_a_process_that_opens_a_file_is_seen_to_hold_one_more(tmp_path: Path) -> None:
    gc.collect()  # what other tests have left is not to go meanwhile
    me = Process("me", os.getpid(), 0)
    before = uses([me])[me]
    with (tmp_path / "x").open("w"):
        assert uses([me])[me].descriptors == before.descriptors + 1
    assert before.memory_bytes > 1 << 20


async def test_a_part_is_a_process_while_it_runs(tmp_path: Path) -> None:
    part = Part("sleeper", ["sleep", "600"], tmp_path / "log")
    assert processes([part]) == []
    await part.start()
    [found] = processes([part])
    assert (found.name, found.pid) == ("sleeper", part.pid)
    await part.stop()
    assert processes([part]) == []
    assert uses([found]) == {}
