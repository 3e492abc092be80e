"""The audit log in the control plane: written by one task, checked at the start, and told of acts that no service was asked for."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import structlog
from nats.aio.msg import Msg
from nats.errors import Error as NatsError

from backhaul_codec.strict.json import JsonError, read_json
from backhaul_hub.artifacts.uploads import PREFIX as UPLOADS
from backhaul_hub.audit import rows
from backhaul_hub.audit.acts import LASTING, READS, act_of
from backhaul_hub.audit.entry import OPERATOR, AuditedAct
from backhaul_hub.audit.log import AuditLog
from backhaul_hub.audit.trail import TrailVerdict, follow
from backhaul_hub.commands.command import Command
from backhaul_hub.commands.outcome import State
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.errors import HubError
from backhaul_hub.streams.twin_streams import BLOBS_BUCKET
from backhaul_runtime.trouble import Trouble

log = structlog.get_logger(__name__)

_HOUR_NS = 3_600 * 1_000_000_000
_READS_MAX = 10_000


@dataclass(eq=False)
class Auditing(Subsystem):
    """Keeps the audit log."""

    _ground: Ground

    def __post_init__(self) -> None:
        self.log = AuditLog(self._ground.clock)
        self.breach = ""
        """What is wrong with the log, as of the start; empty: nothing is."""
        self._told: OrderedDict[tuple[str, str], int] = OrderedDict()
        # The book of commands tells of each more than once.
        self._commanded: OrderedDict[tuple[str, str], None] = OrderedDict()

    async def start(self) -> None:
        """Hear of files."""
        await self._ground.client.subscribe(f"$O.{BLOBS_BUCKET}.M.>", cb=self._file)

    def tasks(self) -> Tasks:
        """Return the writing, the check of the log, and the intake of acts that came before this start."""
        yield self.log.run(self._ground.api, self._ground.registry)
        yield self._check()
        yield self._take_pending()

    async def _take_pending(self) -> None:
        registry = self._ground.registry
        found = await rows.pending(registry)
        for at_ns, act in found.values():
            self.log.note(act, at_ns)
        while found and not await self.log.stored():
            log.warning("acts_of_command_lines_wait", acts=len(found))
        # If this process ends before, they are stored twice rather than not at all.
        await registry.write([rows.drop_pending(found)])

    async def asked(self, service: str, who: str, question: Any, refused: str = "") -> None:
        """Take in that a service was asked, and has answered."""
        act = act_of(service, who, question, refused)
        if act is None or (service in READS and not self._is_new(f"{who} {service}", act)):
            return
        self.log.note(act)
        if service in LASTING and not await self.log.stored():
            log.warning("act_not_in_the_audit_log_yet", service=service)

    def commanded(self, command: Command) -> None:
        """Take in news of a command."""
        if command.state is not State.QUEUED and command.sent_ns:
            return
        if command.key in self._commanded:
            return
        self._commanded[command.key] = None
        while len(self._commanded) > _READS_MAX:
            self._commanded.popitem(last=False)
        detail = f"{command.name} {command.id}"
        refused = "" if command.state is State.QUEUED else command.state.value
        self.log.note(
            AuditedAct(command.who or OPERATOR, "command", command.device, detail, refused)
        )

    def desired(self, device: str, number: int, who: str) -> None:
        """Take in that the desired values of a device are others."""
        self.log.note(AuditedAct(who or OPERATOR, "desired", device, f"revision {number}"))

    def _is_new(self, name: str, act: AuditedAct) -> bool:
        now_ns, key = self._ground.clock.now_ns(), (name, f"{act.about} {act.detail}")
        if now_ns - self._told.get(key, -_HOUR_NS) < _HOUR_NS:
            return False
        self._told[key] = now_ns
        self._told.move_to_end(key)
        while len(self._told) > _READS_MAX:
            self._told.popitem(last=False)
        return True

    async def _file(self, message: Msg) -> None:
        try:
            said = read_json(message.data)
        except JsonError:
            return
        if isinstance(said, dict) and not str(said.get("name", "")).startswith(UPLOADS):
            what = "file-removed" if said.get("deleted") else "file-stored"
            self.log.note(
                AuditedAct(OPERATOR, what, str(said.get("name", "")), str(said.get("digest", "")))
            )

    async def _check(self) -> None:
        """Check the log once, as it is at the start: also after a restore."""
        trouble = Trouble(log, "audit_log_not_checked", HubError, NatsError)
        verdict: TrailVerdict | None = None
        while verdict is None:
            async with trouble:
                # Read first: what comes meanwhile is in the stream, and maybe not in the row.
                head = await rows.head(self._ground.registry)
                verdict = await follow(self._ground.client, head)
        self.breach = verdict.words()
        if self.breach:
            log.error("audit_log_is_broken", what=self.breach)
        else:
            log.info("audit_log_is_whole", messages=verdict.messages, entries=verdict.entries)
