"""Telling alerts of the twin job along the tree, as vehicles' events are told.

Of what TWIN_EVENTS has stored, by a consumer of it: a subscription would hear an alert each time that the
job publishes it, and the stream stores it once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_hub.broadcast.events import told_event
from backhaul_hub.broadcast.points import Told
from backhaul_hub.errors import HubError
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.twin_streams import EVENTS
from backhaul_hub.twin.event_log import ALERT, read_event
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

CONSUMER = "live-alerts"
DELIVER = "hub.alerts.deliver"
_LOOK_S = 5.0


class LiveAlerts:
    """Hears of each alert once it is stored; alerts before a listener came it does not tell.

    Args:
        tell: takes in what is to be told.
        ancestors: returns the subject tokens of a device and all above it.
    """

    def __init__(
        self,
        env: str,
        tell: Callable[[Iterable[Told]], None],
        ancestors: Callable[[str], Iterable[str]],
    ) -> None:
        self._filter = f"fleet.{env}.veh.*.evt.{ALERT}.>"
        self._tell = tell
        self._ancestors = ancestors

    async def start(self, client: Client, api: JetStreamApi) -> None:
        """Listen from now on.

        Raises:
            HubError: the server refused.
        """
        await client.subscribe(DELIVER, cb=self._heard)
        await api.delete_consumer(EVENTS, CONSUMER)
        await self._create(api)

    async def keep(self, api: JetStreamApi) -> None:
        """Make the consumer anew where it is gone, until cancelled."""
        trouble = Trouble(log, "alerts_not_heard", HubError, NatsError, wait_s=0.0)
        while True:
            await asyncio.sleep(_LOOK_S)
            async with trouble:
                if await api.consumer_info(EVENTS, CONSUMER) is None:
                    await self._create(api)
                    log.warning("alert_consumer_was_deleted")

    async def _create(self, api: JetStreamApi) -> None:
        config = {
            "name": CONSUMER,
            "durable_name": CONSUMER,
            "deliver_subject": DELIVER,
            "deliver_policy": "new",
            "ack_policy": "none",
            "filter_subject": self._filter,
        }
        request = {"stream_name": EVENTS, "config": config, "action": ""}
        await api.request(f"CONSUMER.CREATE.{EVENTS}.{CONSUMER}.{self._filter}", request)

    async def _heard(self, message: Msg) -> None:
        alert = read_event(message.subject, message.data)
        if alert is not None:
            self._tell([told_event(alert, self._ancestors(alert.device))])
