"""Delivering notices: one task a channel, which commits the message, sends it, and commits that it was sent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable
from pathlib import Path
from typing import Any

import structlog

from backhaul_hub.alert_settings import AlertsSection, Channel
from backhaul_hub.alerts import rows
from backhaul_hub.alerts.outbox import ChannelQueue, NoticeMessage
from backhaul_hub.alerts.plan import Notice
from backhaul_hub.alerts.senders import DeliveryError, Sender
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

MakeSender = Callable[[str, Channel, Path, str], Sender]


class NoticeDelivery:
    """The channels of hub.toml, each with the notices that wait for it. Nothing of it works before `resume`.

    Args:
        clock: for pauses, and when a message was sent.
        chance: returns a number from 0 to 1.
        sender: makes what sends over a channel.
    """

    def __init__(
        self,
        settings: AlertsSection,
        directory: Path,
        env: str,
        clock: Clock,
        chance: Callable[[], float],
        sender: MakeSender,
    ) -> None:
        self._clock = clock
        self.queues = {
            name: ChannelQueue(name, channel.interval_s, chance)
            for name, channel in settings.channels.items()
        }
        self._senders = {
            name: sender(name, channel, directory, env)
            for name, channel in settings.channels.items()
        }
        self._wake = {name: asyncio.Event() for name in settings.channels}

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return one task for each channel."""
        return [self._deliver(name) for name in self.queues]

    def waits(self, alert: str, channel: str) -> bool:
        """Tell whether a notice of an alert (id) waits for a channel."""
        return self.queues[channel].waits(alert)

    def add(self, notices: Iterable[Notice]) -> None:
        """Take in notices, which hub.db has."""
        for notice in notices:
            self.queues[notice.channel].add([notice])
            self._wake[notice.channel].set()

    def failing(self) -> dict[str, str]:
        """Return why channels do not take their messages, and the remedies, by channel."""
        return {
            name: f"{queue.error}; {len(queue)} notices wait" if len(queue) else queue.error
            for name, queue in self.queues.items()
            if queue.error
        }

    def report(self) -> dict[str, Any]:
        """Return how each channel fares, as JSON has it."""
        return {
            name: {"waiting": len(queue), "failures": queue.failures, "error": queue.error}
            for name, queue in self.queues.items()
        }

    def retry(self, channel: str) -> int:
        """Have a channel that failed tried at once, and return how many notices wait for it.

        Raises:
            HubError: hub.toml, as the control plane read it, has no such channel.
        """
        queue = self.queues.get(channel)
        if queue is None:
            known = ", ".join(sorted(self.queues)) or "none"
            hint = f"it knows {known}; a change of hub.toml counts once backhaul-hub up is started again"
            raise HubError(f"the control plane has no channel {channel!r}", hint=hint)
        queue.retry()
        self._wake[channel].set()
        return len(queue)

    def resume(self, registry: Registry, waiting: Iterable[rows.UnsentNotice]) -> None:
        """Take in the notices that a former control plane has not sent, or not known to be sent."""
        self._registry = registry
        bundled: dict[tuple[str, str], list[Notice]] = {}
        for notice, message in waiting:
            queue = self.queues.get(notice.channel)
            if queue is None:
                log.warning(
                    "notice_of_a_channel_that_is_gone", channel=notice.channel, id=notice.id
                )
                continue
            queue.add([notice])
            if message:
                bundled.setdefault((notice.channel, message), []).append(notice)
        for (channel, message), notices in bundled.items():
            self.queues[channel].resume(message, notices)

    async def _deliver(self, name: str) -> None:
        queue, wake = self.queues[name], self._wake[name]
        while True:
            wake.clear()
            now_s = self._clock.monotonic_s()
            message = queue.next(now_s)
            if message is not None:
                await self._send(queue, message)
                continue
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(queue.pause_s(now_s) if len(queue) else None):
                    await wake.wait()

    async def _send(self, queue: ChannelQueue, message: NoticeMessage) -> None:
        """Send one message, or note why it was not."""
        try:
            await self._registry.write([rows.leaving(message.id, message.notices)])
            delivered = await self._senders[queue.name].send(message)
        except DeliveryError as error:
            self._failed(queue, str(error), error.after_s)
        except HubError as error:
            self._failed(queue, str(error))
        except Exception as error:
            # Of a library, on somebody's odd answer: vehicles are served all the same.
            log.exception("notice_fails_oddly", channel=queue.name)
            self._failed(queue, f"{type(error).__name__}, see the log of backhaul-hub up")
        else:
            await self._record(message)
            again = bool(queue.failures)
            queue.sent(self._clock.monotonic_s(), delivered.refused)
            if delivered.refused:
                log.warning("notice_partly_refused", channel=queue.name, error=delivered.refused)
            log.info(
                "people_told" if not again else "people_told_at_last",
                channel=queue.name,
                message=message.id,
                notices=len(message.notices),
            )

    def _failed(self, queue: ChannelQueue, error: str, after_s: float = 0.0) -> None:
        news = error != queue.error
        pause_s = queue.failed(error, self._clock.monotonic_s(), after_s)
        if news:
            log.warning(
                "people_not_told", channel=queue.name, error=error, again_in_s=round(pause_s)
            )

    async def _record(self, message: NoticeMessage) -> None:
        """Commit that a message was sent: tried until hub.db takes it, since sending again would be telling twice."""
        trouble = Trouble(log, "sent_notice_not_recorded", HubError)
        recorded = False
        while not recorded:
            async with trouble:
                await self._registry.write([rows.sent(message.id, self._clock.now_ns())])
                recorded = True
