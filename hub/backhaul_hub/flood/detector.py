"""Which vehicles send more than any honest one would, and for how long they are kept out. Pure.

Each device has a budget of everything that it can spend at the others' cost. A budget refills at a
steady rate and holds so much at most: a backlog that is drained after weeks is not a flood. Who
overdraws one is suspended, for twice as long each time.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from backhaul_hub.links.leaf_connections import Carried

FORGOTTEN_S = 3600.0
"""How long after its end a suspension is remembered: shown, and doubled by the next."""


class Goods(StrEnum):
    """The budgets of a device."""

    MESSAGES = "messages"
    """Of every kind, as the server counts them."""
    BYTES = "bytes"
    QUESTIONS = "questions"
    """To the control plane: the time, artifacts, resets."""
    UNREADABLE = "unreadable"
    """Messages that were stored, and cannot be read."""
    POINTS = "points"
    """In messages that were stored."""
    EXPANDED = "bytes of points beyond their frames' size"
    """What stored messages come to, as rows with all texts, beyond what honest ones of their size do."""
    SUBSCRIPTIONS = "subscriptions"
    """On one connection. Without a budget: the server refuses more than all of them."""


INSIDE = frozenset({Goods.POINTS, Goods.EXPANDED})
"""What only a look into messages shows."""


class Budget(NamedTuple):
    """How much of a good a device may spend."""

    per_s: float
    at_once: float


@dataclass(slots=True)
class Suspension:
    """A device that is kept out, or was a while ago."""

    since_s: float
    until_s: float
    goods: Goods
    why: str


@dataclass(slots=True)
class _Account:
    """One device: when each of its budgets will be full again, and its link's former traffic."""

    full_s: dict[Goods, float] = field(default_factory=dict)
    seen: Mapping[object, Carried] = field(default_factory=dict)


@dataclass(eq=False)
class FloodWatch:
    """Keeps the budgets of all devices, and suspends floods. Times are monotonic.

    Args:
        budgets: of each device alike.
        subscriptions_max: so many the server takes on one connection; no honest device needs them.
        suspend_s: how long the first time.
        suspend_s_max: how long at most.
    """

    _budgets: Mapping[Goods, Budget]
    _subscriptions_max: int
    _suspend_s: float
    _suspend_s_max: float

    def __post_init__(self) -> None:
        self._accounts: dict[str, _Account] = {}
        self._suspensions: dict[str, Suspension] = {}

    def spend(self, device: str, goods: Goods, amount: float, now_s: float) -> bool:
        """Count a device's spending; return whether it still may. May suspend it."""
        if self.suspended(device, now_s):
            return False
        budget = self._budgets[goods]
        account = self._accounts.setdefault(device, _Account())
        full_s = max(account.full_s.get(goods, now_s), now_s) + amount / budget.per_s
        account.full_s[goods] = full_s
        if full_s - now_s <= budget.at_once / budget.per_s:
            return True
        account.full_s.clear()  # what it has overdrawn is paid for by the suspension
        spent = (full_s - now_s) * budget.per_s
        self._suspend(device, goods, f"{spent:,.0f} {goods} at once", now_s)
        return False

    def carried(self, device: str, links: Mapping[object, Carried], now_s: float) -> None:
        """Take in the traffic of each of a device's links since it was made.

        Mostly it has one. An old one may not have been found dead yet when the next one is up.
        """
        account = self._accounts.setdefault(device, _Account())
        before, account.seen = account.seen, dict(links)
        for connection, total in links.items():
            known = before.get(connection, Carried())
            self.spend(device, Goods.MESSAGES, total.messages - known.messages, now_s)
            self.spend(device, Goods.BYTES, total.size - known.size, now_s)
            if (count := total.subscriptions) >= self._subscriptions_max:
                self._suspend(device, Goods.SUBSCRIPTIONS, f"{count} subscriptions", now_s)

    def suspended(self, device: str, now_s: float) -> bool:
        """Tell whether a device is kept out now."""
        found = self._suspensions.get(device)
        return found is not None and now_s < found.until_s

    def all_suspended(self, now_s: float) -> dict[str, Suspension]:
        """Return who is kept out now."""
        return {device: each for device, each in self._suspensions.items() if now_s < each.until_s}

    def lately(
        self, now_s: float, goods: Collection[Goods] = frozenset(Goods)
    ) -> Iterator[tuple[str, str]]:
        """Yield each device that is suspended or was in the last hour, with its state.

        Only those that have sent too much of one of `goods`.
        """
        for device, each in list(self._suspensions.items()):
            if now_s >= each.until_s + FORGOTTEN_S:
                del self._suspensions[device]
            elif each.goods not in goods:
                continue
            elif now_s < each.until_s:
                yield device, f"{each.why}: kept out for {each.until_s - now_s:.0f} s more"
            else:
                yield device, f"{each.why}: kept out until {now_s - each.until_s:.0f} s ago"

    def _suspend(self, device: str, goods: Goods, why: str, now_s: float) -> None:
        if self.suspended(device, now_s):
            return
        before = self._suspensions.get(device)
        length_s = self._suspend_s
        if before is not None and now_s < before.until_s + FORGOTTEN_S:
            length_s = min(self._suspend_s_max, 2 * (before.until_s - before.since_s))
        self._suspensions[device] = Suspension(now_s, now_s + length_s, goods, why)
