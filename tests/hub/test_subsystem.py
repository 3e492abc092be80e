"""Parts of a control plane: started in their order, run together, stopped in reverse."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.config import load
from backhaul_hub.control.control_plane import ControlPlane
from backhaul_hub.control.subsystem import Subsystem, Tasks, run
from backhaul_hub.errors import HubError
from backhaul_hub.setup.hub_directory import create_hub
from backhaul_runtime.clock import SystemClock
from tests.support.hub_layout import local_layout
from tests.support.waiting import until

if TYPE_CHECKING:
    from pathlib import Path


class Part(Subsystem):
    """Writes down what is done with it."""

    def __init__(self, name: str, done: list[str], *, fails: str = "") -> None:
        self._name = name
        self._done = done
        self._fails = fails

    async def start(self) -> None:
        self._note("start")

    def tasks(self) -> Tasks:
        yield self._work()

    async def stop(self) -> None:
        self._note("stop")

    async def _work(self) -> None:
        self._note("work")
        try:
            await asyncio.Event().wait()
        finally:
            self._note("end")

    def _note(self, what: str) -> None:
        self._done.append(f"{what} {self._name}")
        if self._fails == what:
            raise HubError(f"{self._name} cannot {what}")


class Quiet(Subsystem):
    """Leaves out every step."""


def every(what: str, names: str) -> list[str]:
    return [f"{what} {name}" for name in names]


async def test_all_are_up_before_any_works_and_all_have_ended_before_any_stops() -> None:
    done: list[str] = []
    stop = asyncio.Event()
    parts = [Part(name, done) for name in "abc"]
    running = asyncio.create_task(run([*parts, Quiet()], stop))
    await until(lambda: "work c" in done)
    assert done == every("start", "abc") + every("work", "abc")
    stop.set()
    await running
    assert sorted(done[6:9]) == every("end", "abc")
    assert done[9:] == every("stop", "cba")


async def test_where_one_cannot_start_it_and_those_before_it_are_stopped() -> None:
    done: list[str] = []
    parts = [Part("a", done), Part("b", done, fails="start"), Part("c", done)]
    with pytest.raises(HubError, match="b cannot start"):
        await run(parts, asyncio.Event())
    assert done == every("start", "ab") + every("stop", "ba")


async def test_where_one_fails_at_work_all_are_stopped() -> None:
    done: list[str] = []
    parts = [Part("a", done), Part("b", done, fails="work")]
    with pytest.raises(ExceptionGroup) as raised:
        await run(parts, asyncio.Event())
    assert raised.group_contains(HubError, match="b cannot work")
    assert done[-3:] == ["end a", *every("stop", "ba")]


def test_the_parts_of_a_control_plane_stand_in_their_order(tmp_path: Path) -> None:
    create_hub(tmp_path / "hub", local_layout(4222, 7422))
    plane = ControlPlane(tmp_path / "hub", load(tmp_path / "hub"), SystemClock())
    order = "Ground Streams Erasing Auditing DictionaryShell Fleet Gate Early Hearing SyncShell Operations Reading Watching AlertShell Answers Ready"
    assert [type(part).__name__ for part in plane.parts] == order.split()
