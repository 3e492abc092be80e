"""The life of a vehicle's IN: the real `Sleeper`, `InSleep` and `Beside` over a modelled link, DOWN, and servers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.push.in_sleep import InSleep, SleepPhase
from backhaul_agent.push.sleeper import CHECK_LOOKS, LOOK_S, Sleeper
from backhaul_codec.protocol.push import beside_subject, is_passing
from backhaul_hub.links.beside import Beside
from tests.simulation.models import DownModel, at_once

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from backhaul_runtime.jetstream import StreamMessage

DEVICE, TOKEN = "VID-001", "ab"
CONFIG: Any = SimpleNamespace(device=SimpleNamespace(id=DEVICE, token=TOKEN, down_stream="DOWN_00"))
TICK_S = 0.25
STEPS = 1200
LATE_S = 30.0
"""So long after the last fault everything is at the vehicle, by whatever way, and in IN."""
REST_S = 400.0
"""So long after everything is quiet IN sleeps: an agent that asked in vain tries again after five minutes."""
LEAF_PINGS_S = 20.0
SERVER_TRIES_S = 5.0


class SleepError(Exception):
    """An invariant does not hold; the message says which."""


class Way:
    """One direction of the link: all arrives in order, or is lost with the link."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._under_way: list[tuple[float, Callable[[], None]]] = []

    def send(self, arrives: Callable[[], None]) -> None:
        if self._life.link_up and not self._life.hung:
            self._under_way.append((self._life.now_s + self._life.delay_s, arrives))

    def carry(self) -> None:
        while self._under_way and self._under_way[0][0] <= self._life.now_s:
            self._under_way.pop(0)[1]()

    def break_off(self) -> None:
        self._under_way.clear()


class Life:
    """One vehicle and its hub. DOWN's messages are its sequences."""

    def __init__(
        self, random: Random, sleep: type[InSleep] = InSleep, beside: type[Beside] = Beside
    ) -> None:
        self._random, self._sleep, self._beside = random, sleep, beside
        self.now_s = 0.0
        self.faults = 0.05
        self.link_up, self.hung = True, False
        self.delay_s = 0.05
        self._trouble_s = self._quiet_s = 0.0
        """When the last fault was over, and when the hub last had something to say."""
        self._hung_s = 0.0
        self.up, self.down = Way(self), Way(self)
        self.slept = 0
        # At the hub: DOWN, the durable's reader, the control plane, and whether its servers know of a listener.
        self._down = DownModel()
        self._lasting: dict[str, int] = {}
        """By subject: the sequence of the newest message that is more than passing."""
        self._reads = self._listened = False
        self._sent = 0
        self.control: Beside | None = None
        self._control_due_s = 0.0
        # On the vehicle: the leaf's IN, and the agent. `_has` is committed, and survives it.
        self._sourced, self._in_seq, self._set_up_s = False, 0, 0.0
        self._heard_s = float("-inf")
        self._has: dict[str, int] = {}
        self.read_to = self.news = 0
        self._start_agent()
        self._start_control()

    # The hub.

    def _start_control(self) -> None:
        self.control = self._beside()
        if self.link_up:
            self.control.linked(DEVICE, self.now_s)

    def publish(self, subject: str, *, said: bool = True) -> None:
        """Write a message into DOWN, and say it beside, unless the control plane is killed between."""
        if self.control is None:
            return
        self._down.publish(subject, None)
        seq = self._down.last_seq
        if not is_passing(subject):
            self._lasting[subject] = seq
            self._quiet_s = self.now_s
        body = b'{"epoch": 7, "seq": %d}' % seq
        words = self.control.stored(f"in.{DEVICE}.{subject}", body, self.now_s)
        if said and words is not None:
            self._say(words.leaf_subject, seq)

    def _say(self, subject: str, seq: int) -> None:
        if not self._listened:
            return  # the server drops it

        def heard() -> None:
            if self.sleeper._listening is not None:
                whole = beside_subject(DEVICE, TOKEN, subject)
                message: Any = SimpleNamespace(subject=whole, data=b"%d" % seq)
                at_once(self.sleeper._on_message(message))

        self.down.send(heard)

    def _serve(self) -> None:
        if self.control is not None and self.now_s >= self._control_due_s:
            self._control_due_s = self.now_s + 1.0
            for said in self.control.due(self.now_s):
                self._say(said.leaf_subject, 0)
            if self._reads:
                self.down.send(self._heartbeat)
        if self._reads:
            for seq, subject, _ in self._down.after(self._sent):
                self._sent = seq
                self.down.send(lambda seq=seq, subject=subject: self._bring(seq, subject))  # type: ignore[misc]

    # The vehicle's leaf server.

    def _heartbeat(self) -> None:
        if self._sourced:
            self._heard_s = self.now_s

    def _bring(self, seq: int, subject: str) -> None:
        if not self._sourced:
            return
        self._heard_s, self._in_seq = self.now_s, max(seq, self._in_seq)
        self.read_to = max(self.read_to, seq)
        self.news += not is_passing(subject)
        self._take(subject, seq)

    def _set_up(self) -> None:
        self._set_up_s = self.now_s

        def reset(seq: int = self._in_seq) -> None:
            self._reads, self._sent = True, seq

        self.up.send(reset)

    async def ensure_stream(self, config: dict[str, Any]) -> bool:
        self._may_fail()
        sourced = bool(config.get("sources"))
        if sourced == self._sourced:
            return False
        self._sourced, self._heard_s = sourced, float("-inf")
        if sourced:
            self._set_up()
        else:
            self.up.send(lambda: setattr(self, "_reads", False))
        return True

    async def request(self, request: str) -> dict[str, Any]:
        assert request == "STREAM.INFO.IN"
        self._may_fail()
        if not self._sourced:
            return {"config": {}}
        active = -1 if self._heard_s < 0 else (self.now_s - self._heard_s) * 1e9
        return {"config": {"sources": [{}]}, "sources": [{"active": active, "lag": 0}]}

    def _may_fail(self) -> None:
        if self._random.random() < self.faults:
            raise TimeoutError

    async def subscribe(self, subject: str, cb: object) -> Any:
        self.up.send(lambda: setattr(self, "_listened", True))

        async def unsubscribe() -> None:
            self.up.send(lambda: setattr(self, "_listened", False))

        return SimpleNamespace(unsubscribe=unsubscribe)

    # The vehicle's agent.

    @property
    def hub_seqs(self) -> dict[str, int]:
        return {"": self.read_to}

    def _take(self, subject: str, seq: int) -> None:
        self._has[subject] = max(seq, self._has.get(subject, 0))

    async def take_beside(self, messages: list[StreamMessage]) -> None:
        for message in messages:
            self._take(message.subject, int(message.data))

    def _start_agent(self) -> None:
        self.uplink = UplinkState()
        clock: Any = SimpleNamespace(monotonic_s=lambda: self.now_s)
        here: Any = self
        self.sleeper = Sleeper(
            *(CONFIG, here, self.uplink, clock, self._ask, (), lambda: 0), enabled=True
        )
        self.sleeper.sleep = self._sleep()
        self._looks, self._look_at_s, self._asked_s = 0, 0.0, float("inf")
        if self._listened:
            self._listened = False  # the leaf server knows that it is gone

    def _ask(self) -> None:
        """Have the question asked now; it is repeated until the hub answers."""
        self._asked_s = self.now_s

    def _look(self) -> None:
        sleeper = self.sleeper
        if sleeper._waiting:
            waiting, sleeper._waiting = sleeper._waiting, []
            at_once(self.take_beside(waiting))
        if self.now_s >= self._asked_s and sleeper.sleep.asks:
            self._asked_s = self.now_s + 5.0
            self.up.send(self._answer)
        if self.now_s < self._look_at_s and not sleeper._due.is_set():
            return
        self._look_at_s = self.now_s + LOOK_S
        sleeper._due.clear()
        self._looks += 1
        if self._random.random() < 0.9:
            up = self.link_up and not (self.hung and self.now_s - self._hung_s > LEAF_PINGS_S)
            self.uplink.note(up)
        before, here = sleeper.sleep.phase, self._here()
        try:
            if self.uplink.up:
                at_once(sleeper._step(here, check=self._looks % CHECK_LOOKS == 0))
            at_once(sleeper._listen(here))
        except TimeoutError:
            pass
        self.slept += before is not sleeper.sleep.phase is SleepPhase.ASLEEP

    def _here(self) -> Any:
        return self

    def _answer(self) -> None:
        if self.control is not None:
            last = max([seq for seq, *_ in self._down.after(0)], default=0)
            self.down.send(lambda: self.sleeper.sleep.heard({"": last}))

    # Faults, and what must hold.

    def link_goes(self) -> None:
        self.link_up = self.hung = self._reads = self._listened = False
        self.up.break_off()
        self.down.break_off()
        if self.control is not None:
            self.control.gone(DEVICE)

    def link_comes(self) -> None:
        self.link_goes()
        self.link_up, self.delay_s = True, self._random.choice([0.05, 0.3, 1.0, 2.5])
        if self.sleeper._listening is not None:
            self.up.send(lambda: setattr(self, "_listened", True))
        if self._sourced:
            self._set_up()
        if self.control is not None:
            self.control.linked(DEVICE, self.now_s)

    def _act(self) -> None:
        random = self._random
        kind = random.random()
        if kind < 0.3:
            subject = random.choice([f"c.{random.randrange(10**6)}", "p.lamp.on.%", "p.lamp.dim.%"])
            self.publish(subject)
        elif kind < 0.6:
            self.publish("s.watermark.bulk")
        elif kind < 0.9:
            return
        else:
            self._trouble_s = self.now_s
            deeds: list[Callable[[], object]] = [
                self.link_goes, self.link_comes, self.link_comes, self._hang, self._start_agent, self._kill_control,
                self._start_control,
            ]  # fmt: skip
            random.choice(deeds)()

    def _hang(self) -> None:
        if self.link_up and not self.hung:
            self.hung, self._hung_s = True, self.now_s
            self.up.break_off()
            self.down.break_off()

    def _kill_control(self) -> None:
        if self.control is not None and self._random.random() < 0.5:
            self.publish("p.lamp.on.%", said=False)
        self.control = None

    def _pass_time(self, seconds: float) -> None:
        for _ in range(max(1, int(seconds / TICK_S))):
            self.now_s += TICK_S
            if self.hung and self.now_s - self._hung_s > LEAF_PINGS_S + 2:
                self.link_comes()
            if not self._sound:
                self._trouble_s = self.now_s
            if self._sourced and not self._reads and self.now_s - self._set_up_s > SERVER_TRIES_S:
                self._set_up()
            self.up.carry()
            self._serve()
            self.down.carry()
            self._look()
            self._check()

    @property
    def _sound(self) -> bool:
        return self.link_up and not self.hung and self.control is not None

    def _check(self) -> None:
        if self.now_s - max(self._trouble_s, self._quiet_s) < LATE_S:
            return
        if unheard := {s for s, seq in self._lasting.items() if self._has.get(s, 0) < seq}:
            raise SleepError(f"{unheard} stands in DOWN, and the vehicle has not heard of it")
        if self.read_to < max(self._lasting.values(), default=0):
            raise SleepError("IN never brought what was heard beside")

    def go(self) -> int:
        """Live, then let everything come to rest; return how often IN slept. Raises: SleepError."""
        for _ in range(STEPS):
            self._pass_time(self._random.choice([0.25, 0.5, 1.0, 1.0, 3.0, 12.0]))
            self._act()
        self.faults = 0.0
        if self.control is None:
            self._start_control()
        self.link_comes()
        self._trouble_s = self.now_s
        self._pass_time(REST_S)
        if self.sleeper.sleep.phase is not SleepPhase.ASLEEP:
            raise SleepError("IN never sleeps")
        return self.slept
