"""Keeping alerts and telling people: the shell around `book`, `plan` and `outbox`.

    a look       health's conditions and the twin job's alerts go into the book
    one commit   the alerts, the notices that are due, the count of notices by alert, and the position in TWIN_EVENTS
    then         each channel's task: commit which notices the message has, send it, commit that it was sent

If the control plane dies between the last two, the message goes again, under the same id: nobody else can tell whether it
arrived. It never goes twice where the receiver's answer was recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import structlog
from nats.aio.client import Client
from nats.errors import Error as NatsError

from backhaul_codec.assurance.conditions import Condition
from backhaul_hub.alert_settings import AlertsSection
from backhaul_hub.alerts import rows
from backhaul_hub.alerts.alert import NAME_MAX, AlertRecord, plain
from backhaul_hub.alerts.book import AlertBook, Lasting
from backhaul_hub.alerts.delivery import MakeSender, NoticeDelivery
from backhaul_hub.alerts.plan import Notice, NoticePlan, Routes, ToldSoFar
from backhaul_hub.alerts.reader import BATCH, AlertReader
from backhaul_hub.alerts.senders import Sender
from backhaul_hub.alerts.silences import AlertSilence, Silences
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.questions import Acknowledge, AlertsQuestion, Notify, SilenceQuestion
from backhaul_hub.streams.twin_streams import EVENTS
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

TICK_S = 1.0
SETTLED_S = 30.0
"""So much longer than it must last to be shown, a condition of before a restart has time to be found again."""
_FORGET_S = 600.0
"""Seconds between two looks for alerts that lapse, and rows that are too old."""
_BATCHES_MAX = 20
_OPERATOR = "operator"


class HealthLook(NamedTuple):
    """The findings of health's last look."""

    looked_ns: int
    """When; 0: it has not looked yet."""
    shown: Sequence[Condition]
    lasting: Callable[[], Lasting]
    """Returns the conditions that are found, hidden ones too."""
    after_s: Callable[[str], float]
    """For how long a condition (its code) must be found before it is shown."""


@dataclass
class _Unwritten:
    """Changes that hub.db has not got yet; after a failed commit they go with the next."""

    alerts: dict[str, AlertRecord] = field(default_factory=dict)
    silences: dict[int, AlertSilence] = field(default_factory=dict)
    told: dict[str, Mapping[str, ToldSoFar]] = field(default_factory=dict)
    notices: list[Notice] = field(default_factory=list)
    position: rows.Position | None = None
    """How far TWIN_EVENTS is read."""


class AlertService:
    """The alerts of one hub. Nothing of it works before `start`.

    Args:
        is_place: tells whether there is such a group or device.
        places: returns a device, the groups that it is below, and the fleet; of "" the fleet alone.
        health: returns what health saw last.
        tell: is called with each alert that is new, changed or over, once hub.db has it.
        chance: returns a number from 0 to 1.
        sender: makes what sends over a channel.
    """

    def __init__(
        self,
        settings: AlertsSection,
        directory: Path,
        env: str,
        clock: Clock,
        *,
        is_place: Callable[[str], bool],
        places: Callable[[str], Collection[str]],
        health: Callable[[], HealthLook],
        tell: Callable[[AlertRecord], None],
        chance: Callable[[], float],
        sender: MakeSender = Sender,
    ) -> None:
        self._settings = settings
        self._env = env
        self._clock = clock
        self._is_place = is_place
        self._places = places
        self._health = health
        self._tell = tell
        self.book = AlertBook(settings.rows_max)
        self.silences = Silences()
        self.delivery = NoticeDelivery(settings, directory, env, clock, chance, sender)
        self._unwritten = _Unwritten()
        self._committing = asyncio.Lock()
        self._looked_ns = 0
        self._forgot_s: float | None = None

    async def start(self, client: Client, api: JetStreamApi, registry: Registry) -> None:
        """Read hub.db. Raises: RegistryError."""
        self._registry = registry
        self._started_s = self._clock.monotonic_s()
        self.book.restore(await rows.known_alerts(registry))
        self.silences = Silences(await rows.silences(registry))
        self._plan = NoticePlan(
            Routes(self._settings, self._places),
            self.silences,
            self.delivery.waits,
            await rows.told_of(registry),
        )
        self._plan.changed(self.book.open.values())
        self.delivery.resume(registry, await rows.waiting(registry))
        position = await rows.position_of(registry, EVENTS)
        self._reader = AlertReader(client, api, self._clock, self._env, position)

    def tasks(self) -> Iterable[Coroutine[Any, Any, None]]:
        """Return the work: looking, and one task for each channel."""
        return [self._run(), *self.delivery.tasks()]

    # To ask

    async def listed(
        self,
        question: AlertsQuestion,
        devices: Sequence[str] | None = None,
        sees: Callable[[str], bool] | None = None,
    ) -> dict[str, Any]:
        """Return alerts, the newest first, and the silences that hold.

        Args:
            question: which.
            devices: whose; None: of all, and of the hub itself.
            sees: tells of a group or device whether it is seen; None: all are, and how channels fare is told.

        Raises:
            RegistryError: hub.db is not usable.
        """
        if question.device is not None:
            devices = [question.device]
        now_ns = self._clock.now_ns()
        found = await rows.listed(self._registry, question, devices)
        hold = [each for each in self.silences.now(now_ns) if sees is None or sees(each.place)]
        answer: dict[str, Any] = {
            "alerts": [self._told(each, now_ns) for each in found],
            "next_before_ns": found[-1].since_ns if len(found) == question.limit else None,
            "silences": [each.to_json(now_ns) for each in hold],
        }
        if sees is None:
            answer |= {"beyond": self.book.beyond, "channels": self.delivery.report()}
        if question.id is not None and found:
            answer["notices"] = await rows.notices_of(self._registry, question.id)
        return answer

    async def acknowledge(self, question: Acknowledge) -> dict[str, Any]:
        """Record that somebody takes care of an open alert, and return it as it is recorded.

        Raises:
            HubError: no such alert is open, or hub.db takes nothing.
        """
        now_ns = self._clock.now_ns()
        who = plain(question.who, NAME_MAX) or _OPERATOR
        alert = self.book.acknowledge(question.id, who, question.note, now_ns)
        await self._commit()
        return self._told(alert, now_ns)

    async def silence(self, question: SilenceQuestion) -> dict[str, Any]:
        """Begin a silence, or end one, and return it as it is recorded.

        Raises:
            HubError: it is neither, or there is no such silence, or hub.db takes nothing.
        """
        now_ns, who = self._clock.now_ns(), plain(question.who, NAME_MAX) or _OPERATOR
        if question.end is not None:
            silence = self.silences.end(question.end, who, now_ns)
        elif question.group and question.for_s is not None:
            if not self._is_place(question.group):
                raise HubError(
                    f"there is no group or device {plain(question.group, NAME_MAX)}",
                    hint="see: backhaul-hub tree",
                )
            silence = self.silences.begin(
                *(question.group, question.name, question.for_s, who, question.why, now_ns)
            )
        else:
            raise HubError(
                "a silence takes a group or device and a time: group, for_s; or the id to end"
            )
        self._plan.look_again()
        await self._commit()
        return silence.to_json(now_ns)

    async def retry(self, question: Notify) -> dict[str, Any]:
        """Have a channel that failed tried at once, and return how many notices wait for it.

        Raises:
            HubError: hub.toml, as the control plane read it, has no such channel.
        """
        waiting = self.delivery.retry(question.channel)
        return {"channel": question.channel, "waiting": waiting}

    def device_of(self, id_: str) -> str | None:
        """Return the device of an open alert, "" for the hub itself; None where no such alert is open."""
        alert = self.book.open.get(id_)
        return None if alert is None else alert.key.device

    def place_of(self, silence: int) -> str | None:
        """Return the group or device of a silence that holds; None where none of this number does."""
        now = self.silences.now(self._clock.now_ns())
        return next((each.place for each in now if each.id == silence), None)

    def _told(self, alert: AlertRecord, now_ns: int) -> dict[str, Any]:
        said = alert.to_json()
        if alert.ended_ns:
            return said | {"silent_until_ns": None}
        until_ns = self.silences.until(alert, self._places(alert.key.device), now_ns)
        return said | {"silent_until_ns": until_ns or None}

    # To look

    async def _run(self) -> None:
        trouble = Trouble(log, "alerts_not_kept", HubError, wait_s=0.0)
        unread = Trouble(log, "alerts_not_read", HubError, NatsError, wait_s=0.0)
        while True:
            async with trouble:
                await self.look()
            async with unread:
                await self.read()
            await asyncio.sleep(TICK_S)

    async def look(self) -> None:
        """Take in health's last look, and commit all that is due.

        Raises:
            RegistryError: hub.db takes nothing; all of it goes with the next commit.
        """
        health, now_ns = self._health(), self._clock.now_ns()
        if health.looked_ns != self._looked_ns:
            self._looked_ns = health.looked_ns
            self.book.look(health.shown, health.lasting(), now_ns, self._settled(health.after_s))
        await self._commit()
        await self._forget(now_ns)

    async def read(self) -> None:
        """Take in the alerts that TWIN_EVENTS has got since.

        Raises:
            HubError: the server or hub.db did not answer; what was read goes with the next commit.
            NatsError: likewise.
        """
        for _ in range(_BATCHES_MAX):
            words, position = await self._reader.read()
            if position is None:
                return
            now_ns = self._clock.now_ns()
            for word in words:
                self.book.hear(word, now_ns)
            # What is in the book goes with any commit from here on; heard again, it would change nothing.
            self._reader.position = position
            await self._commit(position)
            if len(words) < BATCH:
                return

    def _settled(self, after_s: Callable[[str], float]) -> Callable[[str], bool]:
        ran_s = self._clock.monotonic_s() - self._started_s

        def settled(code: str) -> bool:
            try:
                return ran_s >= after_s(code) + SETTLED_S
            except KeyError:  # a code of another version
                return True

        return settled

    async def _commit(self, position: rows.Position | None = None) -> None:
        async with self._committing:
            unwritten = self._unwritten
            changed = self.book.take_changed()
            unwritten.alerts |= {each.id: each for each in changed}
            unwritten.silences |= {each.id: each for each in self.silences.take_changed()}
            self._plan.changed(changed)
            notices, told = self._plan.due(self._clock.now_ns())
            unwritten.notices += notices
            unwritten.told |= told
            changes = [
                *rows.alert_changes(unwritten.alerts.values()),
                *rows.silence_changes(unwritten.silences.values()),
                *rows.told_changes(unwritten.told),
                *rows.notice_changes(unwritten.notices),
            ]
            unwritten.position = position or unwritten.position
            if unwritten.position is not None:
                changes.append(rows.position_change(EVENTS, unwritten.position))
            if not changes:
                return
            await self._registry.write(changes)
            self._unwritten = _Unwritten()
        for alert in unwritten.alerts.values():
            self._tell(alert)
        self.delivery.add(unwritten.notices)

    async def _forget(self, now_ns: int) -> None:
        now_s = self._clock.monotonic_s()
        if self._forgot_s is None or now_s - self._forgot_s >= _FORGET_S:
            self._forgot_s = now_s
            self.book.expire(now_ns)
            await self._commit()
            await self._registry.write(rows.forget_changes(self._settings, now_ns))
