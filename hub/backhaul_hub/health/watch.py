"""Looking at the hub's health now and then, and answering `hub.status`."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, replace
from typing import Any, Protocol

import structlog
from nats.errors import Error as NatsError

from backhaul_codec.assurance.conditions import Condition, Finding, counts
from backhaul_codec.assurance.metrics import Sample
from backhaul_hub.config import HubConfig
from backhaul_hub.errors import HubError
from backhaul_hub.health.fleet_sight import FleetSight
from backhaul_hub.health.judge import HealthFacts, HubHealth
from backhaul_hub.health.metrics import samples
from backhaul_hub.hub_time import HubTime
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.jetstream import JetStreamApi, Json
from backhaul_hub.shards import is_passing
from backhaul_hub.streams.streams import declared_streams
from backhaul_hub.uplink.reader import UplinkReader

# Of one stream: who makes more sees the first of them.
_CONSUMERS_MAX = 1024
# Where a server is gone, its fellows wait 4 s for word of the consumers on it before they answer.
_CONSUMERS_S_MAX = 8.0
# A server takes 1 MiB in a message.
_CONDITIONS_SHOWN = 500
# Of one look: where thousands of vehicles are down for so long at once, the log says how many more.
_LOGGED_MAX = 200
log = structlog.get_logger(__name__)


class OtherMachines(Protocol):
    """The machines that would take the control plane over."""

    def status(self) -> dict[str, Any]:
        """Return the leader, and each follower with its distance."""

    def findings(self) -> Iterable[Finding]:
        """Return the faults of those that follow."""


@dataclass(eq=False)
class HealthWatch:
    """Looks, keeps the findings, and tells them.

    Args:
        told: returns the facts of other rooms; streams, consumers, readers, devices and the clock are seen here.
        standby: knows the other machines with a control plane; None: there are none.
    """

    config: InitVar[HubConfig]
    _clock: HubTime
    _api: JetStreamApi
    _readers: Sequence[UplinkReader]
    _fleet: FleetSight
    _: KW_ONLY
    told: Callable[[], Awaitable[HealthFacts]]
    standby: OtherMachines | None

    def __post_init__(self, config: HubConfig) -> None:
        self.facts = HealthFacts(None)
        """What was seen last."""
        self.shown: list[Condition] = []
        self._shown: set[tuple[str, str, str]] = set()
        self.looked_ns = 0
        """When; ns since the Unix epoch, 0: not yet."""
        self._health = HubHealth(config.health)
        self._interval_s = config.health.interval_s
        self._streams = [stream["name"] for stream in declared_streams(config)]

    async def run(self) -> None:
        """Look every `interval_s` seconds (event loop's clock), for ever."""
        while True:
            await self.look()
            await asyncio.sleep(self._interval_s)

    async def look(self) -> None:
        """Look once; each condition that begins or ends is logged."""
        self.facts = await self._see()
        before = self._shown
        self._health.look(self.facts, self._clock.monotonic_s(), self._clock.now_ns())
        self.shown = self._health.conditions.shown()
        self.looked_ns = self._clock.now_ns()
        now = self._shown = {_identity(each) for each in self.shown}
        for event, changed in (("condition", now - before), ("condition_is_over", before - now)):
            say = log.warning if event == "condition" else log.info
            for code, device, about in sorted(changed)[:_LOGGED_MAX]:
                say(event, code=code, device=device, about=about)
            if (more := len(changed) - _LOGGED_MAX) > 0:
                say(event, more=more)

    def status(self) -> dict[str, Any]:
        """Return the answer of `backhaul-hub status --json`."""
        return {
            "time_ns": self._clock.now_ns(),
            "looked_ns": self.looked_ns,
            "devices": self.facts.fleet.devices,
            "connected": self.facts.fleet.up,
            "counts": counts(self.shown),
            "conditions": [each.as_json() for each in self.shown[:_CONDITIONS_SHOWN]],
            "conditions_not_shown": len(self.shown[_CONDITIONS_SHOWN:]),
            **({"standby": self.standby.status()} if self.standby is not None else {}),
        }

    def lasting(self) -> set[tuple[str, str, str]]:
        """Return (code, device, about) of all conditions that are found, hidden ones too."""
        return self._health.conditions.lasting()

    def after_s(self, code: str) -> float:
        """Return for how many seconds a condition must be found before it is shown. Raises: KeyError: no such code."""
        return self._health.conditions.after_s(code)

    def samples(self) -> Iterator[Sample]:
        """Yield the values of the hub's metrics."""
        return samples(self.facts, self.shown, self.looked_ns)

    async def _see(self) -> HealthFacts:
        streams: list[Json] = []
        consumers: list[Json] = []
        answers = True
        try:
            for name in self._streams:
                info = await self._api.stream_info(name)
                if info is None:
                    continue  # it is made anew, see `ControlPlane`
                if is_passing(name):
                    info = {**info, "config": {**info["config"], "sources": []}, "sources": []}
                streams.append(info)
                # DOWN has one for every device, which lags for as long as that is away.
                if name != DOWN and info["state"]["consumer_count"]:
                    consumers += await self._consumers_of(name)
        except (HubError, NatsError) as error:
            log.debug("streams_unknown", error=str(error))
            answers = False
        devices, fleet = await self._fleet.look()
        return replace(
            await self.told(),
            streams=streams if answers else None,
            consumers=consumers if answers else [],
            read={reader.stream: reader.position.seq for reader in self._readers},
            quarantined={reader.stream: reader.position.quarantined for reader in self._readers},
            devices=devices,
            fleet=fleet,
            clock_step=self._clock_step(),
            standby=[*self.standby.findings()] if self.standby is not None else (),
        )

    def _clock_step(self) -> str:
        if self._clock.step is None:
            return ""
        step_s, in_s = self._clock.step.step_ns / 1e9, self._clock.confirms_in_s()
        return f"by {step_s:+.1f} s; gone by in {in_s:.0f} s if it stays"

    async def _consumers_of(self, stream: str) -> list[Json]:
        found: list[Json] = []
        offset = 0
        while offset < _CONSUMERS_MAX:
            request = {"offset": offset}
            answer = await self._api.request(
                f"CONSUMER.LIST.{stream}", request, timeout_s=_CONSUMERS_S_MAX
            )
            page = answer.get("consumers") or []
            found += page
            # Those that are on a server that is gone come in no page; its replicas tell of it.
            listed = len(page) + len(answer.get("missing") or [])
            offset += listed
            if not listed or offset >= answer["total"]:
                break
        return found


def _identity(condition: Condition) -> tuple[str, str, str]:
    return condition.code, condition.device, condition.about
