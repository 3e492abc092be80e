"""Planted bugs in the guards of the hand-over between pushed and sourced: the simulation must find each of them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.push.policy import PushPolicy
from backhaul_agent.push.pusher import Pusher
from backhaul_hub.links.pushes import Change, Pushes, Pushing, _Pusher
from backhaul_hub.links.source_keeper import SourceKeeper
from tests.simulation.hub import HubCores
from tests.simulation.lane_parts import Cores
from tests.simulation.run import Run
from tests.simulation.seeds import found

if TYPE_CHECKING:
    from collections.abc import Collection

    from backhaul_agent.leaf.jetstream import JetStream
    from backhaul_agent.uplink.lane import Lane
    from backhaul_hub.continuity.lane_key import LaneKey
    from backhaul_hub.links.sources import Place, SourcePlan

pytestmark = pytest.mark.slow


class Patient(PushPolicy):
    """A lane sleeps on though the hub confirms none of its pushes."""

    def look(self, epoch: int, lanes: Any, now_s: float) -> bool:
        for lane in self._lanes.values():
            lane.moved_s = now_s
        return super().look(epoch, lanes, now_s)


class Tardy(PushPolicy):
    """The messages between the word to the hub and its leave are not pushed."""

    def pushes(self, name: str, seq: int, size: int, owed_bytes: int) -> bool:
        return super().pushes(name, seq, size, owed_bytes) and self.asleep(name)


class Unsettled(PushPolicy):
    """A hub that has begun anew is not asked again for its leave."""

    @property
    def unsettled(self) -> bool:
        return False


def _pusher(policy: type[PushPolicy]) -> type[Pusher]:
    class Mutated(Pusher):
        def __init__(self, config: Any, ledger: Any, lanes: Collection[Any], *rest: Any) -> None:
            super().__init__(config, ledger, lanes, *rest)
            rate_bytes_s = config.link.rate_kbit_s * 1000 / 8
            self.policy = policy(self.policy.owed_bytes_max, rate_bytes_s, measured=True)
            for lane in lanes:
                lane.pushing = self.policy

    return Mutated


class Untended(Pusher):
    """The durable of a lane that sleeps stays where it was."""

    async def _tend(self, jetstream: JetStream, lane: Lane, *, at_once: bool) -> None:
        pass


class Discreet(Pusher):
    """A hub that has begun to source a lane that sleeps is not told again."""

    async def _tend(self, jetstream: JetStream, lane: Lane, *, at_once: bool) -> None:
        tell, self._tell = self._tell, lambda: None
        await super()._tend(jetstream, lane, at_once=at_once)
        self._tell = tell


class Hopeful(Pusher):
    """The durable of a lane that sleeps goes to the end of OUT, whatever the hub has confirmed."""

    async def _tend(self, jetstream: JetStream, lane: Lane, *, at_once: bool) -> None:
        durable, seq = f"{lane.stream}.{self._durable}", lane.appender.stream_seq + 1
        with suppress(TimeoutError):  # the leaf server does not always answer
            await jetstream.request(f"CONSUMER.RESET.{durable}", {"seq": seq})


class Trustful(SourceKeeper):
    """A lane is sourced no more though the hub lacks messages that were not pushed."""

    def _holds(self, key: LaneKey, seq: int) -> bool:
        return True


class HalfWhole(SourceKeeper):
    """A lane is sourced no more as soon as the hub has the message before the first push, and no matter which others."""

    def _holds(self, key: LaneKey, seq: int) -> bool:
        _, state = self._continuity.current(key.device).get(key.lane, (0, None))
        return state is not None and state.held.highest >= seq


class Unheard(Pushes):
    """A lane is sourced no more though nothing takes its pushes in."""

    def ask(self, word: Pushing, places: Collection[Place], plan: SourcePlan) -> Change:
        self._pushers.setdefault(word.device, _Pusher()).works = True
        return super().ask(word, places, plan)


class Forgetless(Pushes):
    """A vehicle that connects again keeps its leave to push."""

    def gone(self, device: str) -> None:
        pass


class Deaf(Pushes):
    """A lane that its vehicle names no more sleeps on."""

    def ask(self, word: Pushing, places: Collection[Place], plan: SourcePlan) -> Change:
        named = dict.fromkeys((lane for _, lane in self.asleep(word.device)), 0)
        return super().ask(word._replace(lanes={**named, **word.lanes}), places, plan)


def _keeper(pushes: type[Pushes]) -> type[SourceKeeper]:
    class Mutated(SourceKeeper):
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            self.pushes = pushes(self._holds)

    return Mutated


UNPUSHED, REST, LATE, TWICE = "was not pushed", "came to rest", "is not at the hub", "came twice"
UNHEARD, BOTH = "nobody takes its pushes", "and does"
# Of two machines: one asks for what the hub lacks of the other, whose lane nobody sources.
GIVEN_UP = "which another machine has"
MUTATIONS: dict[str, tuple[type[Pusher], type[SourceKeeper], tuple[str, ...]]] = {
    "a lane sleeps on though nothing is confirmed": (_pusher(Patient), SourceKeeper, (REST, LATE)),
    "pushed by leave of the hub only": (_pusher(Tardy), SourceKeeper, (UNPUSHED, LATE)),
    "no leave is asked for again": (_pusher(Unsettled), SourceKeeper, (TWICE,)),
    "the durable of a lane that sleeps stands still": (Untended, SourceKeeper, (REST, TWICE)),
    "a hub that began anew is not told": (Discreet, SourceKeeper, (TWICE,)),
    "the durable goes beyond what is confirmed": (Hopeful, SourceKeeper, (LATE, REST)),
    "not all before the pushes is there": (Pusher, Trustful, (UNPUSHED,)),
    "holes before the pushes do not count": (Pusher, HalfWhole, (UNPUSHED,)),
    "nobody takes the pushes in": (Pusher, _keeper(Unheard), (UNHEARD,)),
    "a leave outlives the link": (Pusher, _keeper(Forgetless), (BOTH, GIVEN_UP)),
    "a lane that is named no more sleeps on": (Pusher, _keeper(Deaf), (REST, LATE)),
}


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_planted_bug_is_found(name: str) -> None:
    """The simulation finds it, by the invariant that it breaks."""
    pusher, keeper, expected = MUTATIONS[name]
    cores, hub_cores = Cores(), HubCores()
    cores.pusher, hub_cores.keeper = pusher, keeper
    what = found(lambda seed: Run(seed, cores=cores, hub_cores=hub_cores, pushes=True))
    assert any(text in what for text in expected), what
