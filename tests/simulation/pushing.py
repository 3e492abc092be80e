"""The vehicle's end of pushing: the real `Pusher` and `StallReport` of an agent, over a modelled leaf server."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NamedTuple

from backhaul_agent.leaf.link_state import UplinkState
from backhaul_agent.push.pusher import LOOK_S, Pusher
from backhaul_agent.uplink.lane_epoch import LaneEpoch
from backhaul_agent.uplink.stall_report import StallReport
from tests.simulation.models import at_once

if TYPE_CHECKING:
    from collections.abc import Mapping

    from backhaul_agent.ledger.lanes import CommittedLane
    from backhaul_agent.uplink.appender import Appender
    from tests.simulation.lane_shell import LaneShell
    from tests.simulation.vehicle import Vehicle

TOKEN = "ab"
CONFIG: Any = SimpleNamespace(
    # So much that sixteen messages are pushed at once.
    link=SimpleNamespace(
        push=True, mode="always", rate_kbit_s=6.4, adaptive=False, stalled_after_s=30.0
    ),
    device=SimpleNamespace(token=TOKEN),
)
STALLED_AFTER_S = 30.0
ASKS_EVERY_S = 60.0


class Question(NamedTuple):
    """A question on `clk.<device>`, as far as it is about lanes."""

    number: int
    epoch: int
    pushed: Mapping[str, int]
    still_epoch: int
    still: Mapping[str, int]


class Entered(LaneEpoch):
    """The real `LaneEpoch`, over the appender of a lane's shell."""

    def __init__(self, shell: LaneShell) -> None:
        self._shell = shell
        self._name = shell.name

    @property
    def _ledger(self) -> Any:
        return self._shell.vehicle.ledger

    @_ledger.setter
    def _ledger(self, _: object) -> None: ...

    @property
    def appender(self) -> Appender:  # type: ignore[override]
        """Return the shell's."""
        return self._shell.appender

    @property
    def state(self) -> CommittedLane:
        """Return the row of the ledger."""
        return self._shell.row


class Pushing:
    """The part of a running agent that pushes; with the agent it begins anew."""

    def __init__(self, vehicle: Vehicle) -> None:
        self._vehicle = vehicle
        self.uplink = UplinkState()
        clock: Any = SimpleNamespace(monotonic_s=lambda: vehicle.now_ns / 1e9)
        lanes: Any = list(vehicle.lanes.values())
        ledger: Any = vehicle.ledger
        self.pusher: Pusher = vehicle.cores.pusher(
            CONFIG, ledger, lanes, self.uplink, clock, self._tell
        )
        self._stall_report = StallReport(STALLED_AFTER_S)
        self.answers: list[tuple[int, list[str]]] = []
        """From the hub, under way: the number of the question, and the lanes that it sources not."""
        self._numbers = 0
        self._told_from = 0
        """No question before this has the newest word."""
        self._untold = True
        self._ask_at_s = self._look_at_s = 0.0
        self._still: tuple[int, Mapping[str, int]] = (0, {})

    def session(self) -> None:
        """Take in that the connection to the leaf server is a new one: its link is not known."""
        self.uplink.note(None)

    def look(self, now_s: float) -> None:
        """Look about, at most once a second."""
        for number, asleep in self.answers:
            if number >= self._told_from:
                self._untold, self._still = False, (0, {})
                self.pusher.heard(asleep)
        self.answers.clear()
        if now_s < self._look_at_s:
            return
        self._look_at_s = now_s + LOOK_S
        lanes = [(lane.name, *lane.entered.owed()) for lane in self._vehicle.lanes.values()]
        if still := self._stall_report.look(lanes, now_s, up=bool(self.uplink.up)):
            self._still = self._vehicle.ledger.epoch, still
            self._untold = True
        if self.uplink.up:
            leaf: Any = self
            at_once(self.pusher.look(leaf))

    def question(self, now_s: float) -> Question | None:
        """Return the question to the hub that is due, if any."""
        word = self.pusher.word()
        if word is None or not (self._untold or now_s >= self._ask_at_s):
            return None
        self._ask_at_s = now_s + ASKS_EVERY_S
        self._numbers += 1
        return Question(self._numbers, word["epoch"], dict(word["lanes"]), *self._still)

    async def request(self, request: str, body: Mapping[str, int] | None = None) -> dict[str, bool]:
        """Answer as the leaf server does."""
        vehicle = self._vehicle
        verb, stream, token = request.rsplit(".", 2)
        assert token == TOKEN
        if vehicle.faulty and vehicle.random.random() < 0.05:
            raise TimeoutError
        lane = stream.removeprefix("OUT_")
        if verb == "CONSUMER.INFO":
            return {"push_bound": vehicle.hub.reads(vehicle, lane)}
        assert verb == "CONSUMER.RESET"
        assert body is not None
        vehicle.out(lane).floor = body["seq"] - 1
        return {}

    def _tell(self) -> None:
        self._told_from, self._untold = self._numbers + 1, True
