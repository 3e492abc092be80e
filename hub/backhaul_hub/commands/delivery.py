"""Reading the messages of operators: each becomes a command, or one that has failed with a reason. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection
from contextlib import suppress
from decimal import Decimal
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_codec.strict.json import Reader, read_json, write_json
from backhaul_codec.subjects import DEVICE_ID
from backhaul_hub.commands.command import Command
from backhaul_hub.commands.outcome import Outcome, State
from backhaul_hub.config import CommandsSection as CommandRules
from backhaul_hub.questions import CommandId, CommandName

BODY_BYTES_MAX = 64 * 1024
_SECOND_NS = 1_000_000_000


class Body(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The JSON of an operator's message; an empty message is an empty object."""

    id: CommandId = ""
    params: msgspec.Raw = msgspec.Raw(b"null")
    deadline_s: Annotated[float, Meta(gt=0)] = 0.0
    who: Annotated[str, Meta(max_length=64)] = ""


class Delivery(NamedTuple):
    """A message of TWIN_CMD."""

    subject: str
    data: bytes
    seq: int
    stored_ns: int


class _Id(msgspec.Struct, frozen=True):
    """As much of a body as names its command."""

    id: CommandId = ""


_read_body = Reader(Body).read


def read_delivery(
    delivery: Delivery, rules: CommandRules, devices: Collection[str], *, full: bool = False
) -> Command:
    """Return the command in a message; one that cannot be carried out has failed already.

    Where it has no id, its place in the stream makes one: the same each time it is delivered.
    """
    tokens = delivery.subject.split(".")
    device, name = tokens[3], ".".join(tokens[5:])
    made_id = f"{delivery.stored_ns:x}-{delivery.seq}"
    body, params, refusal = Body(), "null", None
    try:
        msgspec.convert(name, CommandName)
        body = read_body(delivery.data)
        params = _exact(bytes(body.params))
        _require(body, device, rules, devices, full=full)
    except (ValueError, msgspec.DecodeError) as error:
        body = body if body.id else Body(id=_id_in(delivery.data))
        refusal = Outcome.by_hub(ErrorCode.REFUSED, why=error)
    deadline_s = body.deadline_s or rules.deadline_s
    command = Command(
        device=device,
        id=body.id or made_id,
        name=name,
        params=params,
        who=body.who,
        deadline_ns=delivery.stored_ns + round(min(deadline_s, rules.deadline_s_max) * _SECOND_NS),
        queued_ns=delivery.stored_ns,
    )
    if refusal:
        command.end(State.FAILED, delivery.stored_ns, refusal)
    return command


def read_body(data: bytes) -> Body:
    """Read an operator's message. Raises: ValueError: the hub would refuse it."""
    if len(data) > BODY_BYTES_MAX:
        raise ValueError(f"{len(data)} bytes, {BODY_BYTES_MAX} are allowed")
    return _read_body(data or b"{}")


def _id_in(data: bytes) -> str:
    """Return the id in a body that is refused, so that its sender hears of it; "" where none is found."""
    with suppress(ValueError, RecursionError, msgspec.DecodeError):
        if len(data) <= BODY_BYTES_MAX:
            return msgspec.convert(json.loads(data), _Id).id
    return ""


def _exact(params: bytes) -> str:
    """Return parameters in a form that says the same as their record shows. Raises: JsonError.

    As they came, but for decimals of more digits than a float64 has: those are the nearest one.
    """
    written = write_json(read_json(params))
    same = json.loads(params, parse_float=Decimal) == json.loads(written, parse_float=Decimal)
    return (params if same else written).decode()


def _require(
    body: Body, device: str, rules: CommandRules, devices: Collection[str], *, full: bool
) -> None:
    if not DEVICE_ID.fullmatch(device) or device not in devices:
        raise ValueError(f"there is no device {device}")
    if body.deadline_s > rules.deadline_s_max:
        raise ValueError(f"a deadline of at most {rules.deadline_s_max:g} s, see [commands]")
    if full:
        raise ValueError("too many commands are unfinished")
