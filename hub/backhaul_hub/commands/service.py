"""Operators' commands at the hub: from TWIN_CMD into hub.db and DOWN, and what becomes of them.

The shell around `commands.book`. A message stays unacknowledged in the work queue until its command is
over; what counts is the row in hub.db, which is there before anything is sent, and outlives the queue.
Whatever dies in between, a command is sent again rather than forgotten: the vehicle knows its id.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Coroutine, Sequence
from functools import partial
from itertools import chain
from typing import Any

import structlog
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.errors import Error as NatsError
from nats.errors import MaxPayloadError

from backhaul_codec import CodecError, decode
from backhaul_codec.kinds import LIVE, RESULT
from backhaul_codec.protocol.command_errors import ErrorCode
from backhaul_hub.commands import rows as command_rows
from backhaul_hub.commands.book import CommandBook
from backhaul_hub.commands.command import Command, Key, result_subject
from backhaul_hub.commands.delivery import Delivery, read_delivery
from backhaul_hub.commands.outcome import TEXTS, Doubt, late, read_result
from backhaul_hub.config import HubConfig
from backhaul_hub.continuity.examine import Examined
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.errors import HubError, JetStreamError
from backhaul_hub.lane_names import DOWN
from backhaul_hub.nats.jetstream import JetStreamApi
from backhaul_hub.streams.twin_streams import COMMANDS
from backhaul_runtime.clock import Clock
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

CONSUMER = "control"
DELIVER = "hub.commands.deliver"
_ACK_WAIT_S = 30.0
_LOOK_S = 0.5
_BATCH = 256
_PURGED_MAX = 100_000
_SECOND_NS = 1_000_000_000
_SKEW_NS = _SECOND_NS
"""By how much the clocks of two servers may differ: one stamps commands, another what vehicles send."""


class CommandShell:
    """Takes part in the reading of UP (uplink/consumer.py), and runs the rest as tasks.

    Args:
        devices: tells which devices there are.
        on_news: hears of each command of which something is new.
    """

    def __init__(
        self,
        config: HubConfig,
        clock: Clock,
        devices: Callable[[], Collection[str]],
        on_news: Callable[[Command], None],
    ) -> None:
        self._on_news = on_news
        self.book = CommandBook(config.commands)
        self.garbage = 0
        self._rules = config.commands
        self._env = config.twin.env
        self._clock = clock
        self._devices = devices
        self._heard: list[Command] = []
        self._late: dict[Key, list[RowChange]] = {}
        self._doubts: dict[Doubt, list[Command]] = {}
        self._storing: list[Command | Key | Doubt] = []
        self._untold: deque[Command | Key | Doubt] = deque()
        self._arrivals: asyncio.Queue[Msg] = asyncio.Queue()
        self._held: dict[Key, Msg] = {}
        self._to_purge: deque[str] = deque(maxlen=_PURGED_MAX)
        self._to_send = asyncio.Event()
        self._to_tell = asyncio.Event()

    # Taking part in the reading of UP

    def on_message(self, said: Examined, is_new: bool) -> None:
        """Take in what a vehicle says of a command, and that its ledger is another since."""
        device, uplink = said.key.device, said.uplink
        if is_new and said.seq == 1 and said.key.lane == LIVE:
            self._began(Doubt(device, said.key.epoch, said.stored_ns + _SKEW_NS))
        if uplink.kind is not RESULT or uplink.key is None:
            return
        try:
            heard = read_result(decode(said.body, key=uplink.key).points[0])
        except (CodecError, ValueError) as error:
            self.garbage += 1
            log.warning("result_unreadable", device=device, id=uplink.key, error=str(error))
            return
        named = Key(device, uplink.key)
        if (command := self.book.heard(named, heard)) is not None:
            self._heard.append(command)
            self.book.goes_on(device, self._clock.monotonic_s())
        elif named not in self.book.open and is_new:
            self._late.setdefault(named, []).append(command_rows.put_late(named, late(heard)))

    def take_changes(self) -> Sequence[RowChange]:
        """Return the rows of commands that something was heard of."""
        changes = [command_rows.put(self._heard)] if self._heard else []
        changes += chain.from_iterable(self._late.values())
        for doubt, open_ in self._doubts.items():
            changes += command_rows.put_doubt(doubt, open_)
        self._storing += [*self._heard, *self._late, *self._doubts]
        self._heard, self._late, self._doubts = [], {}, {}
        return changes

    def stored(self) -> None:
        """Take in that what was heard is in hub.db."""
        self._untold += self._storing
        self._storing.clear()
        if self._untold:
            self._to_tell.set()

    def _began(self, doubt: Doubt) -> None:
        """Take in that an epoch began: what was sent to the vehicle before is in doubt."""
        concerned = self.book.doubt(doubt)
        self._heard += [each for each in concerned if each.state.over]
        self._doubts[doubt] = concerned
        self._to_send.set()

    # Running

    async def start(
        self, client: Client, api: JetStreamApi, registry: Registry
    ) -> list[Coroutine[Any, Any, None]]:
        """Read hub.db, begin to take commands in, and return the tasks that are to run.

        Raises:
            HubError: hub.db cannot be read, or the server refuses.
        """
        self.book.restore(await command_rows.restore(registry))
        await self._sweep(api)
        await client.subscribe(DELIVER, cb=self._arrived)
        await self._begin_queue(api)
        self._to_send.set()
        return [
            self._take_in(registry),
            self._send(api, registry),
            self._tell(client, registry),
            self._keep(api, registry),
        ]

    def link_up(self, device: str) -> None:
        """Take in that a device is connected (again)."""
        self.book.link_up(device, self._clock.monotonic_s())

    def link_down(self, device: str) -> None:
        """Take in that a device is gone."""
        self.book.link_down(device)

    def source_set_up(self, device: str) -> None:
        """Take in that a device's source on DOWN was reset, to be set up anew."""
        self.book.source_set_up(device, self._clock.monotonic_s())

    def down_was_made_anew(self) -> None:
        """Send everything that is open once more."""
        self.book.send_again()
        self._to_send.set()

    async def _sweep(self, api: JetStreamApi) -> None:
        """Find what DOWN still holds of commands that are over: we died before they were purged."""
        held = await api.subjects(DOWN, "in.*.c.*")
        open_ = {command.down()[0] for command in self.book.open.values()}
        self._to_purge += held.keys() - open_

    async def _begin_queue(self, api: JetStreamApi) -> None:
        """Have all that is in the work queue delivered now.

        What went to a control plane that died before it had stored it would come after `_ACK_WAIT_S`
        only; a consumer made anew knows nothing of that.
        """
        await api.delete_consumer(COMMANDS, CONSUMER)
        await self._ensure_consumer(api)

    async def _ensure_consumer(self, api: JetStreamApi) -> None:
        config = {
            "name": CONSUMER,
            "durable_name": CONSUMER,
            "deliver_subject": DELIVER,
            "deliver_policy": "all",
            "ack_policy": "explicit",
            "ack_wait": round(_ACK_WAIT_S * _SECOND_NS),
            "max_deliver": -1,
            "max_ack_pending": self._rules.rows_max,
        }
        await api.set_consumer(COMMANDS, config)

    async def _arrived(self, message: Msg) -> None:
        # What a user of the hub has published here is no delivery: it has no place in the queue.
        if message.reply.startswith("$JS.ACK."):
            await self._arrivals.put(message)

    async def _take_in(self, registry: Registry) -> None:
        """Store what operators publish, and only then act upon it; for ever."""
        while True:
            messages = [await self._arrivals.get()]
            while len(messages) < _BATCH and not self._arrivals.empty():
                messages.append(self._arrivals.get_nowait())
            await _until_stored(partial(self._take, messages, registry))

    async def _take(self, messages: list[Msg], registry: Registry) -> None:
        new: dict[Key, Command] = {}
        came: dict[Key, Msg] = {}
        for message in messages:
            command = read_delivery(
                delivery_of(message), self._rules, self._devices(), full=self.book.full
            )
            came[command.key] = message
            if command.key not in self.book.open:
                new.setdefault(command.key, command)
        known = await command_rows.find(registry, new)
        for command in known:  # over already, or else it were open
            del new[command.key]
        if new:
            now_ns, rules = self._clock.now_ns(), self._rules
            forgetting = command_rows.forget(now_ns, rules.days_max, rules.rows_max)
            await registry.write([command_rows.put(new.values()), forgetting])
        # Of two messages with one id the later is acknowledged in the end, the earlier comes again.
        self._held |= came
        for command in new.values():
            if not command.state.over:
                self.book.add(command)
        # What was over already, or is by now: nobody else would take these messages off the queue.
        over = (key for key in came if key not in new and key not in self.book.open)
        self._untold += [*new.values(), *over]
        self._to_tell.set()
        self._to_send.set()

    async def _send(self, api: JetStreamApi, registry: Registry) -> None:
        """Write commands into DOWN, in their order, and take out what is over; for ever."""
        trouble = Trouble(log, "commands_not_sent", HubError, NatsError, OSError)
        while True:
            await self._to_send.wait()
            self._to_send.clear()
            async with trouble:
                while (command := self.book.to_send()) is not None:
                    subject, body = command.down()
                    now_ns = self._clock.now_ns()  # the vehicle may be quicker than the answer
                    await api.publish(subject, body)
                    if self.book.sent(command, now_ns):
                        await _until_stored(partial(registry.write, [command_rows.put([command])]))
                        self._untold.append(command)
                        self._to_tell.set()
                    elif command.state.over:  # in the meantime
                        self._to_purge.append(subject)
                while self._to_purge:
                    await api.purge(DOWN, filter=self._to_purge[0])
                    self._to_purge.popleft()
            if trouble.now:
                self._to_send.set()

    async def _tell(self, client: Client, registry: Registry) -> None:
        """Say what has become of commands; those that are over leave queue and DOWN. For ever."""
        trouble = Trouble(log, "command_not_told", HubError, NatsError, OSError)
        while True:
            await self._to_tell.wait()
            self._to_tell.clear()
            while self._untold:
                told = self._untold[0]
                async with trouble:
                    for command in await _rows(told, registry):
                        await self._say(command, client)
                        self._on_news(command)
                        if command.state.over:
                            await self._leave(command)
                    self._untold.popleft()

    async def _say(self, command: Command, client: Client) -> None:
        subject, told = result_subject(self._env, command.device, command.id), command.told()
        try:
            await client.publish(subject, _body(told))
        except MaxPayloadError:
            code = ErrorCode.RESULT_TOO_LARGE
            told |= {"result": None, "error": TEXTS[code], "code": code.value}
            await client.publish(subject, _body(told))

    async def _leave(self, command: Command) -> None:
        """Have a command that is over taken out of the work queue and of DOWN."""
        self.book.close(command)
        self._to_purge.append(command.down()[0])
        self._to_send.set()
        if (message := self._held.pop(command.key, None)) is not None:
            # Where this is lost it comes again, and is acknowledged then.
            await message.respond(b"+ACK")

    async def _keep(self, api: JetStreamApi, registry: Registry) -> None:
        """End what has had its time, hold what is open in the work queue, look after it; for ever."""
        progress_s = self._clock.monotonic_s()
        while True:
            await asyncio.sleep(_LOOK_S)
            try:
                if ended := self.book.expire(self._clock.now_ns()):
                    await self._store_ended(ended, registry)
                if self.book.unheard(self._clock.monotonic_s()):
                    self._to_send.set()
                if self._clock.monotonic_s() - progress_s > _ACK_WAIT_S / 3:
                    progress_s = self._clock.monotonic_s()
                    await self._hold(api)
            except (HubError, NatsError, OSError) as error:
                log.warning("commands_not_kept", error=str(error) or repr(error))

    async def _store_ended(self, ended: list[Command], registry: Registry) -> None:
        await _until_stored(partial(registry.write, [command_rows.put(ended)]))
        for command in ended:
            log.info("command_ended", device=command.device, id=command.id, state=command.state)
        self._untold += ended
        self._to_tell.set()

    async def _hold(self, api: JetStreamApi) -> None:
        """Say that we are at it, so that nothing is delivered again; make a lost consumer anew."""
        for message in list(self._held.values()):
            await message.respond(b"+WPI")
        try:
            info = await api.consumer_info(COMMANDS, CONSUMER)
        except JetStreamError:
            info = None
        if info is None:
            log.warning("command_consumer_was_deleted")
            await self._ensure_consumer(api)


async def _until_stored(work: Callable[[], Awaitable[None]]) -> None:
    """Do it again until hub.db takes it: what is in memory is right, and must not get lost."""
    trouble = Trouble(log, "commands_not_stored", HubError)
    while True:
        async with trouble:
            return await work()


async def _rows(told: Command | Key | Doubt, registry: Registry) -> list[Command]:
    """Return the commands to tell of; those that are not in memory any more, as they are stored."""
    if isinstance(told, Command):
        return [told]
    if isinstance(told, Doubt):
        return await command_rows.doubted(registry, told)
    return await command_rows.find(registry, [told])


def _body(told: dict[str, Any]) -> bytes:
    return json.dumps(told, ensure_ascii=False).encode()


def delivery_of(message: Msg) -> Delivery:
    """Read a delivered message; sequence and time stand in its reply subject.

    That is ``$JS.ACK.<stream>.<consumer>.<deliveries>.<seq>.<delivery>.<ns>.<pending>``, with domain
    and account after ACK, and more at the end, in its longer form.
    """
    tokens = message.reply.split(".")
    first = 2 if len(tokens) == 9 else 4
    return Delivery(message.subject, message.data, int(tokens[first + 3]), int(tokens[first + 5]))
