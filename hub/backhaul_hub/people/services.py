"""Answer people's questions: the hub's own services, with a look at the tree before each.

Nothing is done here twice: a question is checked, passed on to the service `hub.<service>` or the
command line, and the answer reduced to the person's part of the tree. The person is the writer, always.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import msgspec
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats.js.api import DeliverPolicy

from backhaul_codec import Value
from backhaul_codec.assurance.completeness import HOUR_NS
from backhaul_codec.protocol.history import PastQuestion
from backhaul_codec.state.json_values import parse_path, value_from_json
from backhaul_codec.state.merge import HeadKey
from backhaul_codec.state.tree import Topology
from backhaul_codec.state.tree_text import describe, render
from backhaul_hub import questions
from backhaul_hub.alerts.service import AlertService
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.commands.command import command_subject
from backhaul_hub.commands.delivery import BODY_BYTES_MAX
from backhaul_hub.commands.rows import listed
from backhaul_hub.db.store import Registry
from backhaul_hub.device import FLEET, Device
from backhaul_hub.errors import HubError, RightsError, WriteRefusedError
from backhaul_hub.nats.ephemeral_reader import pending
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.people.history import HistoryGate
from backhaul_hub.people.identity import Person
from backhaul_hub.people.scope import Scope, Subtree
from backhaul_hub.shadow.bucket import ShadowBucket
from backhaul_hub.shadow.document import PARTS
from backhaul_hub.streams.twin_streams import STATE, device_prefix
from backhaul_hub.sync.core import HubSync
from backhaul_hub.sync.service import SyncService
from backhaul_hub.twin.event_answers import events_answer
from backhaul_runtime.clock import Clock

_PAGE_BYTES = 512 << 10
_HOURS_MAX = 30_000
"""Of all devices in one answer about events: what the control plane judges in a fraction of a second."""
_RECORDED_S_MAX = 5.0
_LOOK_S = 0.05


@dataclass
class PeopleServices:
    """Answers people; the right that each service takes stands in the table (control/endpoints.py)."""

    client: Client
    api: JetStreamApi
    registry: Registry
    clock: Clock
    env: str
    core: HubSync
    sync: SyncService
    known: Callable[[], Mapping[str, Device]]
    alerting: AlertService
    past: HistoryGate
    report: Callable[[Mapping[str, Device], str], bytes]
    """A page of the report on some devices: of those after an id."""

    def scope(self, person: Person) -> Scope:
        """Return a person's part of the tree, as it is now."""
        return Scope(person, self.core.tree, self.known)

    # To read

    async def get(self, scope: Scope, question: questions.Get) -> dict[str, Any]:
        """Return heads of a device, or of the groups that are seen."""
        if question.device != FLEET:
            scope.require_device(question.device)
            return await self.sync.get(question)
        answer = await self.sync.get(question)
        seen = [
            point
            for point in answer["points"]
            if scope.sees(point["node"]) and scope.sees(point.get("parent", point["node"]))
        ]
        return answer | {"points": seen}

    async def tree(self, scope: Scope, _: questions.Nothing) -> dict[str, Any]:
        """Return the part of the tree that is seen."""
        tree = cast("Topology", Subtree(scope))
        return {**describe(tree), "lines": render(tree)}

    async def devices(self, scope: Scope, question: questions.DevicesQuestion) -> msgspec.Raw:
        """Return a page of the report on the devices that are seen."""
        known = self.known()
        seen = {device: known[device] for device in scope.devices}
        return msgspec.Raw(self.report(seen, question.after))

    async def state(self, scope: Scope, question: questions.StateQuestion) -> dict[str, Any]:
        """Return the newest values of one device, or a page of them."""
        if question.device is not None:
            scope.require_device(question.device)
            return {"state": await self._state_of(question.device), "next": None}
        found: list[msgspec.Raw] = []
        size, last = 0, ""
        for device in (each for each in scope.devices if each > question.after):
            if size > _PAGE_BYTES:
                return {"state": found, "next": last}
            some = await self._state_of(device)
            size += sum(map(len, map(bytes, some)))
            found, last = found + some, device
        return {"state": found, "next": None}

    async def _state_of(self, device: str) -> list[msgspec.Raw]:
        which = f"{device_prefix(self.env, device)}.state.>"
        policy = DeliverPolicy.LAST_PER_SUBJECT
        messages = pending(self.client, STATE, policy, filter_subject=which)
        try:
            return [msgspec.Raw(message.data) async for message in messages]
        except NatsError as error:
            raise HubError(f"{STATE} cannot be read: {error}") from error

    async def events(self, scope: Scope, question: questions.Events) -> dict[str, Any]:
        """Return events of the devices that are seen."""
        if question.device is not None:
            scope.require_device(question.device)
        now_ns = self.clock.now_ns()
        devices = scope.devices if question.device is None else [question.device]
        hours = max(1, (now_ns - question.since_ns) // HOUR_NS + 1)
        if hours * len(devices) > _HOURS_MAX:
            raise HubError(
                f"{len(devices)} devices and {hours} hours; their product is at most {_HOURS_MAX}",
                hint="ask for one device, or for a shorter time",
            )
        only = None if scope.whole else scope.devices
        return await events_answer(self.client, self.env, self.registry, question, now_ns, only)

    async def conflicts(
        self, scope: Scope, question: questions.ConflictsQuestion
    ) -> dict[str, Any]:
        """Return conflicts of the devices that are seen."""
        if question.device is not None:
            scope.require_device(question.device)
        answer = await self.sync.conflicts(question)
        if scope.whole:
            return answer
        # How many were forgotten is known of all devices together alone: not this person's.
        return {"conflicts": [each for each in answer["conflicts"] if scope.sees(each["device"])]}

    async def commands(self, scope: Scope, question: questions.CommandsQuestion) -> dict[str, Any]:
        """Return the newest commands."""
        if question.device is not None:
            scope.require_device(question.device)
            devices = [question.device]
        else:
            devices = scope.devices
        return await listed(self.registry, question, devices)

    async def shadow(self, scope: Scope, question: questions.Shadow) -> dict[str, Any]:
        """Return the revisions of a shadow's documents."""
        scope.require_device(question.device)
        bucket = await self._bucket()
        parts = PARTS if question.part is None else (question.part,)
        found = {part: await bucket.history(question.device, part) for part in parts}
        documents = {part: [each._asdict() for each in some] for part, some in found.items()}
        return {"device": question.device, "documents": documents}

    async def history(self, scope: Scope, question: PastQuestion) -> msgspec.Raw:
        """Return the past of one series of a device that is seen."""
        scope.require_device(question.device)
        return await self.past.ask(question)

    async def alerts(self, scope: Scope, question: questions.AlertsQuestion) -> dict[str, Any]:
        """Return alerts of the devices that are seen; those of the hub itself to a person who sees all."""
        if question.device is not None:
            scope.require_device(question.device)
        devices = None if scope.whole else scope.devices
        return await self.alerting.listed(question, devices, scope.sees)

    # To write

    async def acknowledge(self, scope: Scope, question: questions.Acknowledge) -> dict[str, Any]:
        """Acknowledge an alert, as the person who asks."""
        device = self.alerting.device_of(question.id)
        if device is None or not scope.sees(device or FLEET):
            raise WriteRefusedError(f"no alert {question.id} is open", hint="ask for them: alerts")
        question.who = _author(scope, question.who)
        return await self.alerting.acknowledge(question)

    async def silence(self, scope: Scope, question: questions.SilenceQuestion) -> dict[str, Any]:
        """Begin or end a silence of a part that is seen, as the person who asks."""
        if question.end is not None:
            place = self.alerting.place_of(question.end)
            if place is None or not scope.sees(place):
                raise WriteRefusedError(f"no silence {question.end} holds")
        else:
            scope.require(question.group)
        question.who = _author(scope, question.who)
        return await self.alerting.silence(question)

    async def set(self, scope: Scope, question: questions.Set) -> dict[str, Any]:
        """Write points, as the person who asks."""
        if question.device == FLEET:
            if question.parent or "/" in question.node:
                raise RightsError("what hangs where, above devices, is for operators to change")
            scope.require(question.node)
        else:
            scope.require_device(question.device)
        question.who = _author(scope, question.who)
        return await self.sync.set(question)

    async def revert(self, scope: Scope, question: questions.Settle) -> dict[str, Any]:
        """Settle a conflict, as the person who asks."""
        conflict = self.core.conflicts.conflicts.get(question.id)
        if conflict is None or not scope.sees(conflict.device):
            raise WriteRefusedError(f"there is no conflict {question.id}")
        question.who = _author(scope, question.who)
        return await self.sync.settle(question)

    async def desire(self, scope: Scope, question: questions.Desire) -> dict[str, Any]:
        """Change the desired fields of a device."""
        scope.require_device(question.device)
        changed = {
            HeadKey("", point.node, point.type, point.key): _wanted(point)
            for point in question.points
        }
        forgotten = {HeadKey("", *parse_path(path)) for path in question.forget}
        revision, taken = await (await self._bucket()).change(
            question.device,
            changed,
            forgotten,
            only=question.only,
            who=scope.person.name,
            based_on=question.based_on,
        )
        return {"device": question.device, "revision": revision, "taken": taken}

    # To command

    async def command(self, scope: Scope, question: questions.CommandQuestion) -> dict[str, Any]:
        """Send a command to a device, and return it as it is recorded."""
        scope.require_device(question.device)
        device = question.device
        id_ = question.id or secrets.token_hex(8)
        body: dict[str, Any] = {
            "id": id_,
            "params": question.params,
            "who": scope.person.name,
        }
        if question.deadline_s is not None:
            body["deadline_s"] = question.deadline_s
        message = msgspec.json.encode(body)
        if len(message) > BODY_BYTES_MAX:
            raise WriteRefusedError(f"{len(message)} bytes; {BODY_BYTES_MAX} are allowed")
        await self.api.publish(command_subject(self.env, device, question.name), message)
        return await self._recorded(questions.CommandsQuestion(device, id_))

    async def _recorded(self, which: questions.CommandsQuestion) -> dict[str, Any]:
        """Return a command as it is recorded, which it is a moment after it was published."""
        assert which.device is not None
        try:
            async with asyncio.timeout(_RECORDED_S_MAX):
                while True:
                    found = await command_rows.newest(self.registry, which, [which.device])
                    if found:
                        return found[0].told()
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            raise HubError(
                f"command {which.id} is in the queue, and not taken yet",
                hint="ask for it with the service commands; after five minutes in the queue it is gone",
            ) from None

    async def _bucket(self) -> ShadowBucket:
        try:
            return await ShadowBucket.open(self.client, self.env)
        except NatsError as error:
            raise HubError(f"the bucket of shadows cannot be used: {error!r}") from error


def _author(scope: Scope, who: str) -> str:
    """Return who writes: nobody may say that it is somebody else."""
    if who not in ("", scope.person.name):
        raise RightsError(f"who writes is {scope.person.name}, not {who[:80]!r}")
    return scope.person.name


def _wanted(point: questions.FieldQuestion) -> Value | None:
    return None if point.delete else value_from_json(point.value, point.dtype)
