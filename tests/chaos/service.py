"""Proof that service goes on once all faults are over: one of everything is taken, and arrives."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tests.chaos.diary import happening_of, readings_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from tests.chaos.diary import Entry, Told
    from tests.chaos.evidence import Found

    Try = Callable[[], Coroutine[None, None, bool]]
WAIT_S = 120.0
"""For how long something is tried until it is taken: leafs and agents may just be starting."""
_PAUSE_S = 0.5


async def ask_until_kept(tries: Iterable[Try], *, wait_s: float = WAIT_S) -> None:
    """Do each until it is acknowledged, or give it up; the diary has what came of it."""
    clock = asyncio.get_running_loop()
    end_s = clock.time() + wait_s

    async def ask(once: Try) -> None:
        with suppress(TimeoutError):
            # Not this alone: nats-py may lose a cancellation, and would be asked for ever.
            async with asyncio.timeout_at(end_s):
                while not await once() and clock.time() < end_s:  # noqa: ASYNC110 - they come back
                    await asyncio.sleep(_PAUSE_S)

    async with asyncio.TaskGroup() as group:
        for once in tries:
            group.create_task(ask(once))


def service_goes_on(told: Told, found: Found) -> Iterable[str]:
    """After all faults each vehicle and the hub take one of everything, and that arrives."""
    if not found.healed_ns:
        return
    since = [entry for entry in told.entries if entry.asked_ns >= found.healed_ns]
    for device in sorted(found.heads):
        kept = [entry for entry in since if entry.device == device and entry.word == "kept"]
        for what in ("readings", "event", "config", "config of the hub", "command"):
            those = [entry for entry in kept if _what(entry) == what]
            if not those:
                yield f"{device}: after all faults no {what} was acknowledged"
            if gone := [entry.body for entry in those if not _is_there(entry, found)]:
                yield f"{device}: after all faults {what} {gone} did not arrive"


def _what(entry: Entry) -> str:
    hubs = entry.what == "config" and entry.body["node"].startswith("hub")
    return "config of the hub" if hubs else entry.what


def _is_there(entry: Entry, found: Found) -> bool:
    match entry.what:
        case "readings":
            return found.up.readings.keys() >= set(readings_of(entry))
        case "event":
            return happening_of(entry) in found.up.happenings
        case "config":
            key = ("", entry.body["node"], "number", "")
            ends = found.heads[entry.device]
            return all(key in end and bool(end[key][0] >= entry.body["value"]) for end in ends)
        case _:
            # A new epoch cannot know whether the former ran what was sent before it began.
            new = {entry.device} & (found.up.renewed | {each.device for each in found.damages})
            state = found.commands.get(entry.body["id"], {}).get("state")
            return state in (("done", "interrupted") if new else ("done",))
