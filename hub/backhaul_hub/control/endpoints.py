"""The table of all services that are asked by request, and the one place that answers by it.

Operators ask `hub.<service>` in account HUB: whoever has the hub directory has every right. People ask
`ask.<…>.<service>`, which says their right and their part of the tree (people/identity.py). Either way a
question is a JSON object whose unknown fields are refused, and a refusal is `{"error": {…}}`.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.assurance.conditions import Condition
from backhaul_codec.protocol.history import PastQuestion
from backhaul_codec.strict.json import Reader
from backhaul_hub import questions
from backhaul_hub.artifacts.object_store import Objects
from backhaul_hub.audit.entry import OPERATOR
from backhaul_hub.commands.rows import listed
from backhaul_hub.control.acts import Act, Acts
from backhaul_hub.control.alert_shell import AlertShell
from backhaul_hub.control.auditing import Auditing
from backhaul_hub.control.erasing import ErasureActs
from backhaul_hub.control.fleet import Fleet
from backhaul_hub.control.gate import Gate
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.reading import Reading
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.db.write_turn import stored
from backhaul_hub.errors import HubError, RightsError
from backhaul_hub.health.report import Report
from backhaul_hub.nats.connection import heard
from backhaul_hub.nats.replies import announce, respond_to
from backhaul_hub.nats.system_requests import reload_servers
from backhaul_hub.people.ask_service import AskService
from backhaul_hub.people.files import FileServices
from backhaul_hub.people.fleet_rows import FleetRows
from backhaul_hub.people.history import HistoryGate
from backhaul_hub.people.hours import HourServices
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.page_logins import PageLogins
from backhaul_hub.people.scope import Scope
from backhaul_hub.people.services import PeopleServices
from backhaul_hub.sync.service import SyncService

Answer = Callable[[Any], Awaitable[Any]]


class Endpoint(NamedTuple):
    """One service: its question, its answer to operators, the right that people need, its answer to them."""

    service: str
    question: type[Any] | None
    """None: the body is not read."""
    operators: Answer | None
    """None: the service is for people alone."""
    right: May | None = None
    """None: the service is for operators alone."""
    people: Callable[[Scope, Any], Awaitable[Any]] | None = None
    early: bool = False
    """Whether operators are answered while the control plane still starts."""
    announced: bool = False
    """Whether `nats service list` shows it."""


def endpoints(
    sync: SyncService,
    people: PeopleServices,
    page: PageServices,
    acts: Iterable[Act],
    *,
    acknowledge: Answer,
    alerts: Answer,
    commands: Answer,
    devices: Answer,
    hand_over: Answer,
    history: Answer,
    notify: Answer,
    one_machine: Answer,
    silence: Answer,
    status: Answer,
    stop: Answer,
) -> list[Endpoint]:
    """Return the table of a control plane's services."""
    q, read, write = questions, May.READ, May.WRITE
    return [
        *(Endpoint(each.service, each.question, each.answer, early=True) for each in acts),
        Endpoint("stop", None, stop, early=True),
        Endpoint("devices", q.DevicesQuestion, devices, read, people.devices, early=True),
        Endpoint("status", None, status, announced=True),
        Endpoint("hand-over", q.HandOver, hand_over),
        Endpoint("one-machine", q.OneDevice, one_machine),
        Endpoint("node", q.Node, sync.node),
        Endpoint("get", q.Get, sync.get, read, people.get),
        Endpoint("set", q.Set, sync.set, write, people.set),
        Endpoint("tree", q.Nothing, sync.tree, read, people.tree),
        Endpoint("conflicts", q.ConflictsQuestion, sync.conflicts, read, people.conflicts),
        Endpoint("revert", q.Settle, sync.settle, write, people.revert),
        Endpoint("commands", q.CommandsQuestion, commands, read, people.commands),
        Endpoint("alerts", q.AlertsQuestion, alerts, read, people.alerts),
        Endpoint("acknowledge", q.Acknowledge, acknowledge, write, people.acknowledge),
        Endpoint("silence", q.SilenceQuestion, silence, write, people.silence),
        Endpoint("notify", q.Notify, notify),
        Endpoint("state", q.StateQuestion, None, read, people.state),
        Endpoint("events", q.Events, None, read, people.events),
        Endpoint("shadow", q.Shadow, None, read, people.shadow),
        Endpoint("history", PastQuestion, history, read, people.history),
        Endpoint("desire", q.Desire, None, write, people.desire),
        Endpoint("command", q.CommandQuestion, None, May.COMMAND, people.command),
        Endpoint("fleet", q.FleetQuestion, None, read, page.rows.fleet),
        Endpoint("series", q.SeriesQuestion, None, read, page.rows.series),
        Endpoint("hours", q.HoursQuestion, None, read, page.hours.hours),
        Endpoint("files", q.OneDevice, None, read, page.files.files),
        Endpoint("health", q.Nothing, None, read, page.health),
        Endpoint("login", q.PageLogin, None, read, page.logins.login),
    ]


@dataclass(eq=False)
class PageServices:
    """The services of the fleet's page, beside those that all programs of people use."""

    rows: FleetRows
    hours: HourServices
    logins: PageLogins
    files: FileServices
    _overview: Callable[[], dict[str, Any]]

    async def health(self, scope: Scope, _: questions.Nothing) -> dict[str, Any]:
        """Return the hub at one look, to a person who sees all."""
        if not scope.whole:
            raise RightsError(
                f"the health of the hub itself is for who sees all: {scope.person.name} sees "
                f"{scope.person.group}"
            )
        return self._overview()


async def _unheard(service: str, who: str, question: Any, refused: str) -> None:
    """Note nothing."""


class Services:
    """Answers by a table.

    Args:
        scope: returns a person's part of the tree, as it is now.
        asked: told of each question that was answered or refused: service, who, question, why not.
    """

    def __init__(
        self,
        table: Iterable[Endpoint],
        scope: Callable[[Person], Scope],
        asked: Callable[[str, str, Any, str], Awaitable[None]] = _unheard,
    ) -> None:
        self._asked = asked
        self._table = {each.service: each for each in table}
        self._readers = {
            each.service: Reader(each.question) for each in self._table.values() if each.question
        }
        self._scope = scope

    async def open(self, client: Client, *, early: bool = False) -> None:
        """Answer operators over a connection in account HUB, for as long as it lives."""
        for each in self._table.values():
            if each.operators is None or each.early != early:
                continue
            subject = questions.subject(each.service)
            respond = partial(
                respond_to, client, answer=partial(self._answer, each.service, each.operators)
            )
            if each.announced:
                await announce(client, each.service, subject, respond)
            else:
                await client.subscribe(subject, cb=respond)

    async def answer(self, person: Person, service: str, body: bytes) -> Any:
        """Return the answer to a person, for msgspec to encode.

        Raises:
            HubError, CodecError, SubjectError: the question is refused, and why.
        """
        asked = self._table.get(service)
        if asked is None or asked.right is None or asked.people is None:
            known = ", ".join(sorted(each.service for each in self._table.values() if each.people))
            raise RightsError(f"there is no service {service[:80]!r} for people", hint=known)
        scope = self._scope(person)
        scope.require_may(asked.right)
        scope.require_group()
        answer = partial(asked.people, scope)
        return await self._noted(service, person.name, self._read(service, body), answer)

    async def _answer(self, service: str, answer: Answer, message: Msg) -> Any:
        who = (message.headers or {}).get(questions.WHO_HEADER, "")[:64]
        name = f"{OPERATOR} {who}" if who else OPERATOR
        return await self._noted(service, name, self._read(service, message.data), answer)

    async def _noted(self, service: str, who: str, question: Any, answer: Answer) -> Any:
        """Return the answer to a question, once the audit log knows of it."""
        try:
            found = await answer(question)
        except HubError as error:
            await self._asked(service, who, question, error.message)
            raise
        await self._asked(service, who, question, "")
        return found

    def _read(self, service: str, body: bytes) -> Any:
        reader = self._readers.get(service)
        return reader.read(body or b"{}") if reader else None


@dataclass(eq=False)
class Answers(Subsystem):
    """Answers operators and people by the table; `early` has to be awaited before it is started."""

    _ground: Ground
    _fleet: Fleet
    _gate: Gate
    _reading: Reading
    _sync: SyncShell
    _alerts: AlertShell
    _auditing: Auditing
    _status: Callable[[], dict[str, Any]]
    _overview: Callable[[], dict[str, Any]]
    _shown: Callable[[], Sequence[Condition]]
    _end: Callable[[], None]
    _again: Callable[[], None]

    async def early(self) -> None:
        """Answer those who ask early: nothing that a command line has done to hub.db waits for the other parts."""
        ground, fleet, gate, sync = self._ground, self._fleet, self._gate, self._sync
        self._report = report = Report(
            *(fleet.continuity, gate.leafs.links, fleet.sources.lags, fleet.words.clocks),
            *(sync.report, gate.rotations.rotations, gate.vehicles.vehicles),
        )
        alerts = self._alerts.service
        service = SyncService(
            *(sync.core, sync.readings, ground.registry, ground.clock, fleet.devices.known)
        )
        past = HistoryGate(ground.client)
        people = PeopleServices(
            *(ground.client, ground.api, ground.registry, ground.clock, ground.config.twin.env),
            *(sync.core, service, fleet.devices.known),
            alerting=alerts,
            past=past,
            report=lambda devices, after: report.page(devices, (), after),
        )
        page = PageServices(
            FleetRows(
                *(fleet.continuity, gate.leafs.links, fleet.sources.lags, fleet.devices.known),
                *(sync.core, sync.readings, self._shown),
            ),
            HourServices(ground.registry, fleet.continuity, fleet.words),
            PageLogins(
                ground.keys, ground.registry, ground.clock, ground.config.page.session_h * 3600
            ),
            FileServices(lambda: Objects(ground.client), ground.clock),
            self._overview,
        )
        place = (ground.directory, lambda: ground.config, ground.keys, ground.registry)
        erasures = ErasureActs(*place, ground.clock, ground.client, self._learn, self._again)
        acts = Acts(
            *(ground.directory, ground.keys, ground.registry, ground.clock, self._learn, erasures)
        )
        table = endpoints(
            *(service, people, page, acts.table()),
            acknowledge=alerts.acknowledge,
            alerts=alerts.listed,
            commands=partial(listed, ground.registry),
            devices=self._devices,
            hand_over=self._hand_over,
            history=past.ask,
            notify=alerts.retry,
            one_machine=gate.vehicles.one_machine,
            silence=alerts.silence,
            status=self._health,
            stop=self._stop,
        )
        self._services = Services(table, people.scope, self._auditing.asked)
        await self._services.open(ground.client, early=True)
        await heard(ground.client)

    async def start(self) -> None:
        """Answer all other operators."""
        await self._services.open(self._ground.client)

    def tasks(self) -> Tasks:
        """Return the answering of people."""
        yield AskService(self._ground.client, self._services.answer).run()

    async def _devices(self, question: questions.DevicesQuestion) -> msgspec.Raw:
        await stored(self._ground.registry)  # what a crash would take back is not told
        known, readers = self._fleet.devices.known(), self._reading.readers
        return msgspec.Raw(self._report.page(known, readers, question.after))

    async def _learn(self, files: bool) -> str:
        """Have servers and control plane know hub.db; return why not all do, or nothing."""
        ground, problems = self._ground, list[str]()
        # The servers first: a key that is revoked is shut out by them.
        steps: tuple[Callable[[], Awaitable[object]], ...] = (
            *([partial(reload_servers, ground.system, ground.servers)] if files else []),
            partial(ground.accounts.push, ground.system),
            self._fleet.learn,
            partial(self._gate.rotations.look, ground.registry),
        )
        for step in steps:
            try:
                await step()
            except HubError as error:
                problems.append(str(error))
            except NatsError as error:
                problems.append(repr(error))
        return "; ".join(problems)

    async def _health(self, _: None) -> msgspec.Raw:
        return msgspec.Raw(json.dumps(self._status()).encode())

    async def _hand_over(self, question: questions.HandOver) -> dict[str, Any]:
        leadership = self._ground.leadership
        if leadership is None:
            raise HubError(
                "this hub has one control plane", hint="see [standby] in docs/cluster.md"
            )
        said = leadership.hand_over(question.to)
        self._end()  # takes effect once this is answered
        return said

    async def _stop(self, _: None) -> dict[str, Any]:
        self._end()  # takes effect once this is answered
        return {}
