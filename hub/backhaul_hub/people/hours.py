"""The completeness of devices, a letter an hour, for the fleet's heat map.

c complete    w waiting: something is missing    s silent: nothing is missing, and nobody has spoken since
e explained   i imported                         - nobody has spoken of it
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backhaul_codec.assurance.completeness import NO_MARK_AFTER, HourReport, hours_between
from backhaul_codec.assurance.completeness_text import to_json
from backhaul_hub import questions
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.db.store import Registry
from backhaul_hub.db.write_turn import stored
from backhaul_hub.errors import HubError
from backhaul_hub.lane_records.completeness import facts_of_each
from backhaul_hub.lane_records.device_words import WordBook
from backhaul_hub.lane_records.imported_rows import imports_of_each
from backhaul_hub.people.hour_letters import Facts, HourLetters, Window
from backhaul_hub.people.scope import Scope

HOURS_MAX = 24 * 31
"""Of many devices; of one twelve times as many."""
NOBODY = "-"
SILENT = "s"
_ONE_MAX = 12 * HOURS_MAX
_JUDGED_MAX = 200
"""Devices that one answer judges, so that others have their turn, and a page appears piece by piece."""
_LETTERS_MAX = 100_000
"""Of one answer."""
_LOOKED_AT_ONCE = 200
_NAME_BYTES = 4


@dataclass(eq=False)
class HourServices:
    """Answers how complete hours are.

    Args:
        words: counts the words of vehicles on their lanes.
        letters: what was judged already.
    """

    _registry: Registry
    _continuity: Continuity
    _words: WordBook
    _letters: HourLetters = field(
        default_factory=lambda: HourLetters(secrets.token_hex(_NAME_BYTES))
    )

    async def hours(self, scope: Scope, question: questions.HoursQuestion) -> dict[str, Any]:
        """Return a letter for each hour and device, with one device each hour's report too.

        With `since`, the `known` of an earlier answer, those devices alone whose letters changed.

        Raises:
            HubError: these are no hours, or too many.
        """
        one = question.device
        hours = hours_between(question.from_ns, question.to_ns)
        most = HOURS_MAX if one is None else _ONE_MAX
        if not 0 < len(hours) <= most:
            raise HubError(f"{len(hours)} hours; 1 to {most} may be asked for")
        if one is None:
            return await self._of_all(scope.devices, hours, question)
        scope.require_device(one)
        facts = (await facts_of_each(self._registry, {one: self._lanes(one)}))[one]
        reports = facts.judge(hours)
        told = {
            "device": one,
            "hours": _letters(reports, hours),
            "reports": [to_json(each) for each in reports],
        }
        return {"from_ns": hours[0], "hours": len(hours), "devices": [told], "next": None}

    async def _of_all(
        self, devices: list[str], hours: range, question: questions.HoursQuestion
    ) -> dict[str, Any]:
        letters = self._letters
        since, known = letters.since(question.since, devices), letters.token(devices)
        window = letters.window(hours[0], hours[-1])
        imports = await imports_of_each(self._registry)
        found: list[dict[str, str]] = []
        judged = 0
        next_: str | None = None
        after = [device for device in devices if device > question.after]
        for number in range(0, len(after), _LOOKED_AT_ONCE):
            some = after[number : number + _LOOKED_AT_ONCE]
            unknown = [
                each
                for each in some
                if window.letters(each, self._facts(each, imports, window)) is None
            ]
            if judged and judged + len(unknown) > _JUDGED_MAX:
                next_ = after[number - 1]
                break
            judged += len(unknown)
            await self._judge(unknown, hours, imports, window)
            found += [
                {"device": each, "hours": window.told(each)}
                for each in some
                if window.turn(each) > since
            ]
            if len(found) * len(hours) > _LETTERS_MAX and number + len(some) < len(after):
                next_ = some[-1]
                break
            await asyncio.sleep(0)
        stretch = {"from_ns": hours[0], "hours": len(hours)}
        return {**stretch, "devices": found, "next": next_, "known": known, "whole": since < 0}

    async def _judge(
        self, devices: list[str], hours: range, imports: Mapping[str, Hashable], window: Window
    ) -> None:
        if not devices:
            return
        # The count first, and only once hub.db has all that is counted: what it is told meanwhile has the
        # device judged once more.
        await stored(self._registry)
        words = {device: self._words.counted[device] for device in devices}
        facts = await facts_of_each(self._registry, {device: {} for device in devices})
        for device in devices:
            lanes = self._lanes(device)
            judged = replace(facts[device], lanes=lanes)
            oldest_ns = judged.oldest_ns
            by = Facts.of(words[device], imports.get(device), lanes, oldest_ns)
            window.put(device, by, _letters(judged.judge(hours), hours), oldest_ns)
            await asyncio.sleep(0)

    def _facts(self, device: str, imports: Mapping[str, Hashable], window: Window) -> Facts:
        oldest_ns = window.oldest_ns.get(device, 0)
        return Facts.of(
            self._words.counted[device], imports.get(device), self._lanes(device), oldest_ns
        )

    def _lanes(self, device: str) -> dict[LaneKey, LaneState]:
        lanes = self._continuity.lanes
        return {key: lanes[key] for key in self._continuity.of_device(device)}


def _letters(reports: Sequence[HourReport], hours: range) -> str:
    by_hour = {each.hour_ns: each for each in reports}
    return "".join(letter(by_hour.get(hour)) for hour in hours)


def letter(report: HourReport | None) -> str:
    """Return the letter of an hour."""
    if report is None:
        return NOBODY
    if report.state == "waiting" and not report.missing and report.why.startswith(NO_MARK_AFTER):
        return SILENT
    return report.state[0]
