"""The commands that are not over: where each one stands, and which are due. Pure.

A command goes one way: queued, sent, accepted, and one of the ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import inf

from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_hub.commands.command import Command, Key
from backhaul_hub.commands.outcome import NOTHING, Doubt, Heard, Outcome, State, late
from backhaul_hub.config import CommandsSection as CommandRules

AGAIN_S_MIN, AGAIN_S_MAX = 5.0, 300.0
AGAIN_BYTES_MAX = 64 * 1024
"""What one device is sent again at a time: the link may be slow, and paid for by the byte."""
_SECOND_NS = 1_000_000_000


class CommandBook:
    """The commands that are not over, oldest first, and which of them DOWN lacks."""

    def __init__(self, rules: CommandRules) -> None:
        self.open: dict[Key, Command] = {}
        self._rules = rules
        self._lacking: dict[Key, Command] = {}
        self._away: set[Key] = set()
        """Those whose vehicle was never connected since they came."""
        self._forsaken: set[Key] = set()
        """Those that were started under a ledger that is no more: the next one has its word on them once it
        has got them."""
        self._again: dict[str, tuple[float, float]] = {}
        """Of each connected device: when to send again what it has not taken up, and the wait before.

        Never, `inf`, once it has heard nothing of it for long enough.
        """

    @property
    def full(self) -> bool:
        """Tell whether another command would be one too many."""
        return len(self.open) >= self._rules.rows_max

    def add(self, command: Command) -> None:
        """Take in a command, once it is stored."""
        self.open[command.key] = command
        self._lacking[command.key] = command
        if command.device not in self._again:
            self._away.add(command.key)

    def send_again(self) -> None:
        """Take in that DOWN may lack any open command; a vehicle that has it answers again."""
        self._lacking = dict(self.open)

    def link_up(self, device: str, now_s: float) -> None:
        """Take in that a device is connected (again); `now_s` is monotonic, here and below."""
        self._again[device] = (now_s + AGAIN_S_MIN, AGAIN_S_MIN)
        self._away = {key for key in self._away if key.device != device}

    def link_down(self, device: str) -> None:
        """Take in that a device is gone: the commands that wait for it stand in DOWN."""
        self._again.pop(device, None)

    def source_set_up(self, device: str, now_s: float) -> None:
        """Take in that a connected device's source is set up anew, which may pass over commands."""
        if device in self._again:
            at_s, _ = self._again[device]
            self._again[device] = (min(at_s, now_s + AGAIN_S_MIN), AGAIN_S_MIN)

    def goes_on(self, device: str, now_s: float) -> None:
        """Take in that a connected device sees to its commands.

        Where they were not sent again any more, they are from now on. No sooner: the words of a long
        queue, one after the other, would have all of it sent again every few seconds.
        """
        if self._again.get(device, (0.0, 0.0))[0] == inf:
            self.link_up(device, now_s)

    def unheard(self, now_s: float) -> bool:
        """Have the commands sent again that connected devices have not taken up; return whether there are any.

        A source that is set up anew may pass over some of what stands in DOWN (ADR 1), and nobody on
        the vehicle could know. A vehicle that goes on to say nothing is left alone by and by.
        """
        due = {device: wait_s for device, (at_s, wait_s) in self._again.items() if at_s <= now_s}
        if not due:
            return False
        for device, waited_s in due.items():
            wait_s = min(2 * waited_s, AGAIN_S_MAX)
            at_s = now_s + wait_s if waited_s < AGAIN_S_MAX else inf
            self._again[device] = (at_s, wait_s)
        again = self._oldest_unheard(due)
        # In the order of all, so that what was published later does not come first.
        wanted = self._lacking.keys() | again
        self._lacking = {key: command for key, command in self.open.items() if key in wanted}
        return bool(again)

    def _oldest_unheard(self, devices: Collection[str]) -> set[Key]:
        """Return of each device's commands those to send again: the first, and more as they fit."""
        unheard = set()
        room = dict.fromkeys(devices, AGAIN_BYTES_MAX)
        for key, command in self.open.items():
            unheard_of = command.state is State.SENT or key in self._forsaken
            if not unheard_of or room.get(key.device, 0) <= 0:
                continue
            size = sum(map(len, command.down()))
            if size <= room[key.device] or room[key.device] == AGAIN_BYTES_MAX:
                unheard.add(key)
            room[key.device] -= size
        return unheard

    def to_send(self) -> Command | None:
        """Return the command to be written into DOWN next."""
        return next(iter(self._lacking.values()), None)

    def sent(self, command: Command, now_ns: int) -> bool:
        """Take in that DOWN has a command; return whether that is news."""
        self._lacking.pop(command.key, None)
        if command.state is not State.QUEUED:
            return False
        command.state, command.sent_ns = State.SENT, now_ns
        return True

    def heard(self, key: Key, heard: Heard) -> Command | None:
        """Take in a vehicle's word; return the command where that is news of an open one."""
        if (command := self.open.get(key)) is None:
            return None
        self._forsaken.discard(key)
        if command.state.over:
            heard = late(heard)
        if heard.rank <= command.rank:
            return None
        command.sent_ns = command.sent_ns or heard.time_ns
        if heard.state.over:
            command.ended_ns, command.outcome = heard.time_ns, heard.outcome
        else:
            command.accepted_ns, command.outcome = heard.time_ns, NOTHING
        command.state = heard.state
        return command

    def doubt(self, doubt: Doubt) -> list[Command]:
        """Take in that a vehicle's ledger is another now; return the commands that this concerns.

        An open one waits for its deadline all the same: the vehicle gets it (again), and may have a
        better word. So it does where one was accepted: whoever has a new ledger may never end it otherwise.
        """
        concerned = []
        for key, command in self.open.items():
            if key.device != doubt.device or key in self._away:
                continue
            if command.queued_ns > doubt.until_ns:
                continue
            if command.unheard:
                command.state = State.INTERRUPTED
            elif command.state is State.ACCEPTED:
                self._forsaken.add(key)
                self._lacking[key] = command
                continue
            elif command.state not in {State.QUEUED, State.SENT}:
                continue
            command.outcome = doubt.outcome
            concerned.append(command)
        return concerned

    def expire(self, now_ns: int) -> list[Command]:
        """End the commands that no vehicle has ended in time, and return them.

        A vehicle starts nothing after a deadline; and of what it had started it tells, sooner or
        later, unless it is lost.
        """
        wait_ns = round(self._rules.result_wait_s * _SECOND_NS)
        ended = []
        for command in self.open.values():
            if command.state.over:
                continue
            if command.state is not State.ACCEPTED:
                if now_ns >= command.deadline_ns:
                    self._give_up(command, now_ns)
                    ended.append(command)
            elif now_ns >= command.deadline_ns + wait_ns:
                command.end(State.INTERRUPTED, now_ns, Outcome.by_hub(ErrorCode.NO_RESULT))
                ended.append(command)
        return ended

    def _give_up(self, command: Command, now_ns: int) -> None:
        """End a command that no vehicle has started, as far as is known."""
        if command.doubted:
            command.state, command.ended_ns = State.INTERRUPTED, now_ns
        else:
            code = ErrorCode.AWAY if command.key in self._away else ErrorCode.UNHEARD
            command.end(State.EXPIRED, now_ns, Outcome.by_hub(code))

    def close(self, command: Command) -> None:
        """Forget a command that is over, stored as such, and told."""
        self.open.pop(command.key, None)
        self._lacking.pop(command.key, None)
        self._forsaken.discard(command.key)
        self._away.discard(command.key)

    def restore(self, commands: Iterable[Command]) -> None:
        """Take in the commands that hub.db has as open; nobody knows which vehicle was connected since."""
        for command in commands:
            self.add(command)
            self._away.discard(command.key)
