"""The completeness of devices, a letter an hour, for the fleet's heat map.

c complete    w waiting: something is missing    s silent: nothing is missing, and nobody has spoken since
e explained   i imported                         - nobody has spoken of it
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backhaul_codec.assurance.completeness import NO_MARK_AFTER, HourReport, hours_between
from backhaul_codec.assurance.completeness_text import to_json
from backhaul_hub import questions
from backhaul_hub.continuity.lane_book import Continuity
from backhaul_hub.continuity.lane_key import LaneKey
from backhaul_hub.continuity.lane_state import LaneState
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.people.scope import Scope
from backhaul_hub.uplink.completeness import facts_of_each

HOURS_MAX = 24 * 31
"""Of many devices; of one twelve times as many."""
NOBODY = "-"
SILENT = "s"
_ONE_MAX = 12 * HOURS_MAX
_DEVICES_EACH = 200
# Letters of one answer, so that others have their turn, and a page appears piece by piece.
_LETTERS_MAX = 100_000


@dataclass(eq=False)
class HourServices:
    """Answers how complete hours are.

    Args:
        registry: hub.db.
        continuity: how all lanes stand now.
    """

    _registry: Registry
    _continuity: Continuity

    async def hours(self, scope: Scope, question: questions.HoursQuestion) -> dict[str, Any]:
        """Return a letter for each hour and device, with one device each hour's report too.

        Raises:
            HubError: these are no hours, or too many.
        """
        one = question.device
        hours = hours_between(question.from_ns, question.to_ns)
        most = HOURS_MAX if one is None else _ONE_MAX
        if not 0 < len(hours) <= most:
            raise HubError(f"{len(hours)} hours; 1 to {most} may be asked for")
        if one is not None:
            scope.require_device(one)
            wanted, next_ = [one], None
        else:
            most_devices = max(1, min(_DEVICES_EACH, _LETTERS_MAX // len(hours)))
            after = [device for device in scope.devices if device > question.after]
            wanted = after[:most_devices]
            next_ = wanted[-1] if len(after) > len(wanted) else None
        facts = await facts_of_each(
            self._registry, {device: self._lanes(device) for device in wanted}
        )
        found = []
        for device in wanted:
            reports = {each.hour_ns: each for each in facts[device].judge(hours)}
            letters = "".join(letter(reports.get(hour)) for hour in hours)
            told: dict[str, Any] = {"device": device, "hours": letters}
            if one is not None:
                told["reports"] = [to_json(each) for each in reports.values()]
            found.append(told)
            await asyncio.sleep(0)
        return {"from_ns": hours[0], "hours": len(hours), "devices": found, "next": next_}

    def _lanes(self, device: str) -> Mapping[LaneKey, LaneState]:
        lanes = self._continuity.lanes
        return {key: lanes[key] for key in self._continuity.of_device(device)}


def letter(report: HourReport | None) -> str:
    """Return the letter of an hour."""
    if report is None:
        return NOBODY
    if report.state == "waiting" and not report.missing and report.why.startswith(NO_MARK_AFTER):
        return SILENT
    return report.state[0]
