"""Keeping vehicles out that flood the hub: looks at the links' traffic, and suspends.

The server has no limit for messages in a second. It counts them for each leaf, and a list of all
leafs costs something with a thousand of them; so the account's total is asked for each second, and
the list where that has grown by more than one honest vehicle sends.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.wire.expansion import Expansion
from backhaul_hub.access.rules import SUBS_MAX
from backhaul_hub.config import Flood
from backhaul_hub.errors import HubError
from backhaul_hub.flood.detector import INSIDE, Budget, FloodWatch, Goods
from backhaul_hub.links.leaf_connections import Carried, Leafs
from backhaul_hub.nats.system_requests import ask_each
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

INTERVAL_S = 0.5
LATE_NS = 600_000_000_000
_TOTALS = "$SYS.REQ.ACCOUNT.PING.STATZ"
log = structlog.get_logger(__name__)


class FloodGuard:
    """Suspends for as long as it runs; its knowledge is forgotten with it.

    Args:
        keep_out: has the servers cut these devices and refuse them, and no others; called again until
            it has.
        deaf: drops what was asked and not looked at yet, and all that is asked meanwhile.
    """

    def __init__(
        self,
        config: Flood,
        clock: Clock,
        keep_out: Callable[[frozenset[str]], Awaitable[None]],
        deaf: Callable[[], AbstractAsyncContextManager[None]],
    ) -> None:
        self.watch = FloodWatch(
            {
                Goods.MESSAGES: Budget(config.messages_s_max, config.messages_burst),
                Goods.BYTES: Budget(config.bytes_s_max, config.bytes_burst),
                Goods.QUESTIONS: Budget(config.questions_s_max, config.questions_burst),
                Goods.UNREADABLE: Budget(config.unreadable_s_max, config.unreadable_burst),
                Goods.POINTS: Budget(config.points_s_max, config.points_burst),
                Goods.EXPANDED: Budget(config.expanded_s_max, config.expanded_burst),
            },
            SUBS_MAX,
            config.suspend_s,
            config.suspend_s_max,
        )
        self._clock = clock
        self._keep_out = keep_out
        self._deaf = deaf
        self._due = asyncio.Event()
        self._kept_out: frozenset[str] = frozenset()
        # Suspended, and have asked since the servers were last told to keep them out.
        self._ask_on: set[str] = set()
        # Begun with and not done: some servers may keep out others than those above.
        self._begun: frozenset[str] | None = None
        self._noticed = {
            Goods.MESSAGES: config.messages_s_max * INTERVAL_S,
            Goods.BYTES: config.bytes_s_max * INTERVAL_S,
        }
        self._totals: dict[Goods, int] = {}

    def may_ask(self, device: str) -> bool:
        """Count a device's question to the control plane, and say whether it may ask still."""
        may = self.watch.spend(device, Goods.QUESTIONS, 1, self._clock.monotonic_s())
        if not may and device not in self._kept_out:
            self._ask_on.add(device)
            self._due.set()
        return may

    def unreadable(self, device: str) -> None:
        """Count a message that cannot be read."""
        self.watch.spend(device, Goods.UNREADABLE, 1, self._clock.monotonic_s())

    def expanded(self, device: str, expansion: Expansion, sent: int, stored_ns: int) -> None:
        """Count the contents of a message of so many bytes, that was stored just now.

        What the control plane reads late, as after it was away, says nothing of how fast it came.
        """
        if self._clock.now_ns() - stored_ns > LATE_NS:
            return
        now_s = self._clock.monotonic_s()
        may = self.watch.spend(device, Goods.POINTS, expansion.points, now_s)
        if beyond := expansion.beyond(sent):
            may = self.watch.spend(device, Goods.EXPANDED, beyond, now_s)
        if not may and device not in self._kept_out:
            self._due.set()

    def carried(self, device: str, links: Mapping[object, Carried]) -> None:
        """Take in the traffic of each of a device's links since it was made."""
        self.watch.carried(device, links, self._clock.monotonic_s())

    def flooding(self) -> Mapping[str, str]:
        """Return the state of devices that are kept out, or were within the last hour."""
        return dict(self.watch.lately(self._clock.monotonic_s(), frozenset(Goods) - INSIDE))

    def expanding(self) -> Mapping[str, str]:
        """Return the same of those whose messages have too much in them."""
        return dict(self.watch.lately(self._clock.monotonic_s(), INSIDE))

    async def run(self, system: Client, account: str, leafs: Leafs, servers: int) -> None:
        """Look and act, for ever.

        Args:
            system: a connection in the system account.
            account: the vehicles'.
            leafs: asks the servers what each link has carried, and tells `carried`.
            servers: how many the hub has.
        """
        kinds = (HubError, NatsError, ValueError)
        trouble = Trouble(log, "floods_not_seen_to", *kinds, wait_s=0.0)
        while True:
            async with trouble:
                # Who floods the control plane is dealt with at once: each step takes longer by it.
                if not self._due.is_set() and self._grew(
                    await self._ask_totals(system, account, servers)
                ):
                    await leafs.refresh()
                self._due.clear()
                await self.act()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(INTERVAL_S):
                    await self._due.wait()

    async def act(self) -> None:
        """Keep out who is suspended now, and nobody else. Raises: HubError: to be tried again."""
        now_s = self._clock.monotonic_s()
        suspended = self.watch.all_suspended(now_s)
        if suspended.keys() == self._kept_out and self._begun is None:
            return
        # Once, however often it is tried: for as long as a server is away.
        for device in sorted(suspended.keys() - self._kept_out - (self._begun or frozenset())):
            each = suspended[device]
            log.error(
                "device_floods", device=device, why=each.why, kept_out_s=each.until_s - each.since_s
            )
        for device in sorted(self._kept_out - suspended.keys()):
            log.info("device_may_come_back", device=device)
        # Who was cut by those servers that answer does not ask on. To go deaf for it at each attempt
        # would leave the others unheard for as long as one server is away.
        asked = any(
            suspended[device].goods is Goods.QUESTIONS
            for device in suspended.keys() & self._ask_on - self._kept_out
        )
        self._begun = frozenset(suspended)
        async with self._deaf() if asked else contextlib.nullcontext():
            self._ask_on.clear()
            await self._keep_out(frozenset(suspended))
        self._kept_out = frozenset(suspended)
        self._begun = None

    async def _ask_totals(self, system: Client, account: str, servers: int) -> dict[Goods, int]:
        """Return the bytes that all leafs of an account have sent since their servers were started."""
        question = json.dumps({"accounts": [account], "include_unused": True}).encode()
        totals = {Goods.MESSAGES: 0, Goods.BYTES: 0}
        for answer in await ask_each(system, _TOTALS, question, servers):
            for each in json.loads(answer).get("data", {}).get("account_statz") or []:
                received = each.get("received", {})
                totals[Goods.MESSAGES] += received.get("msgs", 0)
                totals[Goods.BYTES] += received.get("bytes", 0)
        return totals

    def _grew(self, totals: dict[Goods, int]) -> bool:
        before, self._totals = self._totals, totals
        return any(
            totals[goods] - before.get(goods, 0) > limit for goods, limit in self._noticed.items()
        )
