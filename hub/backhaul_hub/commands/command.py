"""An operator's command as the hub knows it: its key, its state, and its outcome as people see them. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_codec.strict.json import JsonError, read_json
from backhaul_hub.commands.outcome import NOTHING, By, Outcome, State
from backhaul_hub.streams.twin_streams import device_prefix


class Key(NamedTuple):
    """The name of a command: ids are unique for each device."""

    device: str
    id: str


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
    outcome: Outcome = NOTHING

    @property
    def key(self) -> Key:
        """Return its name."""
        return Key(self.device, self.id)

    @property
    def rank(self) -> int:
        """Return how much is known of it (`Outcome.rank`)."""
        return self.outcome.rank(self.state)

    @property
    def doubted(self) -> bool:
        """Tell whether it is open, and the vehicle's ledger another since (`Doubt`)."""
        return not self.state.over and self.outcome.doubt > 0

    @property
    def unheard(self) -> bool:
        """Tell whether the hub called it expired, and the vehicle may have got it."""
        said = (self.outcome.by, self.outcome.code)
        return self.state is State.EXPIRED and said == (By.HUB, ErrorCode.UNHEARD)

    def end(self, state: State, now_ns: int, outcome: Outcome) -> None:
        """Have the hub's own word end it."""
        self.state, self.ended_ns, self.outcome = state, now_ns, outcome

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
        return found | (self.outcome.told() if self.state.over else {})


def _shown(params: str) -> Any:
    """Return parameters as they are shown; those of an older hub, which took more, as text."""
    try:
        return read_json(params)
    except JsonError:
        return params


def command_subject(env: str, device: str, name: str) -> str:
    """Return where a command is published."""
    return f"{device_prefix(env, device)}.cmd.{name}"


def result_subject(env: str, device: str, id_: str) -> str:
    """Return the subject on which the sender of a command hears of it."""
    return f"{device_prefix(env, device)}.res.{id_}"
