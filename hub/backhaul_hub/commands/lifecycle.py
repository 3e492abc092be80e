"""Operators' commands as the hub knows them: where each one stands, and what is due. Pure.

A command goes one way: queued, sent, accepted, and one of the ends. The hub's own word is the least:
what it called expired, having heard nothing, becomes what the vehicle says of it later. And where the
vehicle's ledger is another since, whose word on it may be lost, it becomes interrupted.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from math import inf
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta

from backhaul_codec import Opaque
from backhaul_codec.points import JSON
from backhaul_codec.strict.json import JsonError, Reader, read_json, write_json
from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.questions import CommandId, CommandName
from backhaul_hub.streams.twin_streams import device_prefix

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from backhaul_codec import Point
    from backhaul_hub.config import Commands as CommandRules

BODY_BYTES_MAX = 64 * 1024
AGAIN_S_MIN, AGAIN_S_MAX = 5.0, 300.0
AGAIN_BYTES_MAX = 64 * 1024
"""What one device is sent again at a time: the link may be slow, and paid for by the byte."""
UNHEARD = "no word from the vehicle by its deadline"
"""Why the hub calls a command expired that the vehicle may have got."""
AWAY = "the vehicle was not connected before its deadline"
"""Why it does where the vehicle cannot have got it."""
_STARTED_LATE = "started, as the hub heard after it had given it up; no end is heard yet"
_SECOND_NS = 1_000_000_000
_NOTHING = "{}"


class State(StrEnum):
    """Where a command stands."""

    QUEUED = "queued"
    SENT = "sent"
    ACCEPTED = "accepted"
    EXPIRED = "expired"
    INTERRUPTED = "interrupted"
    FAILED = "failed"
    DONE = "done"

    @property
    def over(self) -> bool:
        """Tell whether it is an end."""
        return self in _ENDS


_ENDS = frozenset({State.EXPIRED, State.INTERRUPTED, State.FAILED, State.DONE})
# The hub's guess is less than the vehicle's word; but once the vehicle has another ledger, that doubt is
# more than an `expired`, which this ledger cannot know. Failed or done, it has ended: the first word stands.
_RANKS = {
    State.QUEUED: 0, State.SENT: 1, State.ACCEPTED: 2,
    State.EXPIRED: 5, State.INTERRUPTED: 7, State.FAILED: 8, State.DONE: 8,
}  # fmt: skip
_HUBS_RANKS = {State.EXPIRED: 3, State.INTERRUPTED: 4}
DOUBT_RANK = 6


def rank_of(state: State, said: str) -> int:
    """Return how much a word on a command tells: a number that only ever grows in its life.

    Args:
        state: what it says.
        said: as `Command.said`, which tells whose word it is.
    """
    found = json.loads(said)
    if state is State.INTERRUPTED and "epoch" in found:
        return DOUBT_RANK
    return (_HUBS_RANKS if found.get("by") == "hub" else {}).get(state, _RANKS[state])


class Key(NamedTuple):
    """What names a command: ids are unique for each device."""

    device: str
    id: str


_EVER_NS = (1 << 63) - 1


class Doubt(NamedTuple):
    """An epoch of a vehicle began: its ledger may not have what the former one knew of commands.

    Nobody can tell from the hub whether anything was lost with that. The vehicle itself says the same
    of what it gets again.
    """

    device: str
    epoch: int
    until_ns: int = _EVER_NS
    """What was queued later was sent to the new ledger: the hub may read of the epoch long after it began."""

    @property
    def said(self) -> str:
        """Return the hub's word on a command of which nothing is heard: JSON, as `Command.said`."""
        error = f"{UNHEARD}, whose ledger began anew since it was sent: it may have run"
        return msgspec.json.encode({"error": error, "by": "hub", "epoch": self.epoch}).decode()


@dataclass(slots=True)
class Command:
    """One command; times by the hub's clock, but `accepted_ns` and `ended_ns` by the vehicle's."""

    device: str
    id: str
    name: str
    params: str
    """JSON."""
    who: str
    deadline_ns: int
    queued_ns: int
    state: State = State.QUEUED
    sent_ns: int = 0
    accepted_ns: int = 0
    ended_ns: int = 0
    said: str = _NOTHING
    """JSON: `result`, `error`, `runs`, and `by` where it is the hub's word; `epoch` where it is in doubt."""

    @property
    def key(self) -> Key:
        """Return what names it."""
        return Key(self.device, self.id)

    @property
    def rank(self) -> int:
        """Return how much is known of it (`rank_of`)."""
        return rank_of(self.state, self.said)

    @property
    def doubted(self) -> bool:
        """Tell whether it is open, and the vehicle's ledger another since (`Doubt`)."""
        return not self.state.over and self.said != _NOTHING

    @property
    def unheard(self) -> bool:
        """Tell whether the hub called it expired, and the vehicle may have got it."""
        return self.state is State.EXPIRED and json.loads(self.said).get("error") == UNHEARD

    def down(self) -> tuple[str, bytes]:
        """Return subject and body of its message in DOWN."""
        body = {"name": self.name, "sent_ns": self.queued_ns, "deadline_ns": self.deadline_ns}
        body_params = body | {"params": msgspec.Raw(self.params.encode())}
        return f"in.{self.device}.c.{self.id}", msgspec.json.encode(body_params)

    def told(self) -> dict[str, Any]:
        """Return it as operators and programs see it."""
        found: dict[str, Any] = {
            "device": self.device,
            "id": self.id,
            "name": self.name,
            "state": self.state.value,
            "params": _shown(self.params),
            "who": self.who,
            "deadline_ns": self.deadline_ns,
        }
        for state in ("queued", "sent", "accepted", "ended"):
            if time_ns := getattr(self, f"{state}_ns"):
                found[f"{state}_ns"] = time_ns
        # A doubt is nobody's business before its deadline, by which the vehicle may have a better word.
        said: dict[str, Any] = json.loads(self.said) if self.state.over else {}
        return found | said


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an operator publishes; an empty message is an empty object."""

    id: CommandId = ""
    params: msgspec.Raw = msgspec.Raw(b"null")
    deadline_s: Annotated[float, Meta(gt=0)] = 0.0
    who: Annotated[str, Meta(max_length=64)] = ""


class Arrival(NamedTuple):
    """A message of TWIN_CMD."""

    subject: str
    data: bytes
    seq: int
    stored_ns: int


class Heard(NamedTuple):
    """What a vehicle says of a command, on `r.<id>`."""

    state: State
    time_ns: int
    said: str

    @property
    def rank(self) -> int:
        """Return how much it tells (`rank_of`)."""
        return rank_of(self.state, self.said)


class _Said(msgspec.Struct, frozen=True):
    """The JSON of a result, as far as the hub reads it."""

    state: str
    result: msgspec.Raw = msgspec.Raw(b"")
    error: str = ""
    runs: int = 0


class _Id(msgspec.Struct, frozen=True):
    """As much of a body as tells who it is of."""

    id: CommandId = ""


_read_body = Reader(Body).read
_read_said = Reader(_Said).read
_VEHICLE_STATES = frozenset(State) - {State.QUEUED, State.SENT}


def read_result(point: Point) -> Heard:
    """Read what a vehicle says of a command. Raises: ValueError: it is no such thing."""
    if not isinstance(point.value, Opaque) or point.value.dtype != JSON:
        raise ValueError("a result is JSON")
    said = _read_said(point.value.data)
    if said.state not in _VEHICLE_STATES:
        raise ValueError(f"{said.state[:40]!r} is no state of a command")
    kept: dict[str, Any] = {"runs": said.runs}
    if bytes(said.result):
        kept["result"] = said.result
    if said.error:
        kept["error"] = said.error
    # Above 0, which says "not yet" in a row, whatever the vehicle's clock is.
    return Heard(State(said.state), max(1, point.time), msgspec.json.encode(kept).decode())


def read_arrival(
    arrival: Arrival, rules: CommandRules, devices: Collection[str], *, full: bool = False
) -> Command:
    """Make a command of what was published; what cannot be carried out has failed already.

    Where it has no id, its place in the stream makes one: the same each time it is delivered.
    """
    tokens = arrival.subject.split(".")
    device, name = tokens[3], ".".join(tokens[5:])
    made_id = f"{arrival.stored_ns:x}-{arrival.seq}"
    body, params, refusal = Body(), "null", ""
    try:
        msgspec.convert(name, CommandName)
        body = read_body(arrival.data)
        params = _exact(bytes(body.params))
        _require(body, device, rules, devices, full=full)
    except (ValueError, msgspec.DecodeError) as error:
        body = body if body.id else Body(id=_id_in(arrival.data))
        refusal = f"not sent: {error}"
    deadline_s = body.deadline_s or rules.deadline_s
    command = Command(
        device=device,
        id=body.id or made_id,
        name=name,
        params=params,
        who=body.who,
        deadline_ns=arrival.stored_ns + round(min(deadline_s, rules.deadline_s_max) * _SECOND_NS),
        queued_ns=arrival.stored_ns,
    )
    if refusal:
        _end(command, State.FAILED, arrival.stored_ns, refusal)
    return command


def read_body(data: bytes) -> Body:
    """Read what an operator publishes. Raises: ValueError: the hub would refuse it."""
    if len(data) > BODY_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes, {BODY_BYTES_MAX} are allowed")
    return _read_body(data or b"{}")


def _id_in(data: bytes) -> str:
    """Return the id in a body that is refused, so that who sent it hears of it; "" where none is found."""
    with suppress(ValueError, RecursionError, msgspec.DecodeError):
        if len(data) <= BODY_BYTES_MAX:
            return msgspec.convert(json.loads(data), _Id).id
    return ""


def _exact(params: bytes) -> str:
    """Return parameters in a form that says what the record shows of them. Raises: JsonError.

    As they came, but for decimals of more digits than a float64 has: those are the nearest one.
    """
    written = write_json(read_json(params))
    same = json.loads(params, parse_float=Decimal) == json.loads(written, parse_float=Decimal)
    return (params if same else written).decode()


def _shown(params: str) -> Any:
    """Return parameters as they are shown; those of an older hub, which took more, as text."""
    try:
        return read_json(params)
    except JsonError:
        return params


def _require(
    body: Body, device: str, rules: CommandRules, devices: Collection[str], *, full: bool
) -> None:
    if not DEVICE_ID.fullmatch(device) or device not in devices:
        raise ValueError(f"there is no device {device}")
    if body.deadline_s > rules.deadline_s_max:
        raise ValueError(f"a deadline of at most {rules.deadline_s_max:g} s, see [commands]")
    if full:
        raise ValueError("too many commands are unfinished")


def _end(command: Command, state: State, now_ns: int, error: str) -> None:
    """Have the hub's own word end a command."""
    command.state, command.ended_ns, command.said = state, now_ns, _by_hub(error)


def _by_hub(error: str) -> str:
    """Return the hub's own word on a command, as `Command.said`."""
    return msgspec.json.encode({"error": error, "by": "hub"}).decode()


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
        """Take in that DOWN may lack whatever is open; a vehicle that has it answers again."""
        self._lacking = dict(self.open)

    def link_up(self, device: str, now_s: float) -> None:
        """Take in that a device is connected (again); `now_s` is monotonic, here and below."""
        self._again[device] = (now_s + AGAIN_S_MIN, AGAIN_S_MIN)
        self._away = {key for key in self._away if key.device != device}

    def link_down(self, device: str) -> None:
        """Take in that a device is gone: what waits for it stands in DOWN."""
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
        """Have sent again what connected devices have not taken up; return whether that is anything.

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
        """Return what is to be written into DOWN next."""
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
            command.ended_ns, command.said = heard.time_ns, heard.said
        else:
            command.accepted_ns, command.said = heard.time_ns, _NOTHING
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
            command.said = doubt.said
            concerned.append(command)
        return concerned

    def expire(self, now_ns: int) -> list[Command]:
        """End what no vehicle has ended in time, and return it.

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
                _end(command, State.INTERRUPTED, now_ns, "started, and no result ever since")
                ended.append(command)
        return ended

    def _give_up(self, command: Command, now_ns: int) -> None:
        """End a command that no vehicle has started, as far as is known."""
        if command.doubted:
            command.state, command.ended_ns = State.INTERRUPTED, now_ns
        else:
            why = AWAY if command.key in self._away else UNHEARD
            _end(command, State.EXPIRED, now_ns, why)

    def close(self, command: Command) -> None:
        """Forget a command that is over, stored as such, and told."""
        self.open.pop(command.key, None)
        self._lacking.pop(command.key, None)
        self._forsaken.discard(command.key)
        self._away.discard(command.key)

    def restore(self, commands: Iterable[Command]) -> None:
        """Take in what was open when it was stored; nobody knows who was connected since."""
        for command in commands:
            self.add(command)
            self._away.discard(command.key)


def late(heard: Heard) -> Heard:
    """Return what a vehicle's word makes of a command that was over for the hub.

    One that was started has not expired, as far as is known; its end comes, unless the ledger that is to
    tell it is lost. It may be that it did: the deadline passed while the start was written down.
    """
    if heard.state is not State.ACCEPTED:
        return heard
    return Heard(State.INTERRUPTED, heard.time_ns, _by_hub(_STARTED_LATE))


def command_subject(env: str, device: str, name: str) -> str:
    """Return where a command is published."""
    return f"{device_prefix(env, device)}.cmd.{name}"


def result_subject(env: str, device: str, id_: str) -> str:
    """Return where whoever sent a command hears what becomes of it."""
    return f"{device_prefix(env, device)}.res.{id_}"
