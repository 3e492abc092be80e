"""The shell around `budget.LinkBudget`: reads counters and files, sets flushes, has the ledger remember the bytes.

It takes part in commits: it sees there which kinds of messages are written, and lets the ledger
remember the bytes of the month. It tells the hub of thinning before thinning begins.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import structlog

from backhaul_agent.commit.participant import AT_ONCE_S, CommitParticipant
from backhaul_agent.hub_time.hub_clock import HubClock, Quality
from backhaul_agent.ledger.system_events import event, marked
from backhaul_agent.metered.budget import (
    HOME,
    KINDS,
    ROAMING,
    LinkAllowance,
    LinkBudget,
    Meter,
    kind_of,
)
from backhaul_agent.metered.roaming import FILE_BYTES_MAX, Network, is_roaming, read_network
from backhaul_agent.metered.thinning import Sieve, ThinningAccount, thinned_event

if TYPE_CHECKING:
    from backhaul_agent.commit.participant import Draft
    from backhaul_agent.errors import RefusedError
    from backhaul_agent.leaf.link_state import LinkTraffic
    from backhaul_agent.ledger.rows import Outgoing
    from backhaul_agent.link_config import LinkConfig

LOOK_S_MAX = 10.0
SAVE_S = 60.0  # a commit of its own where nothing else is written: flash wears
META = "link_budget"
MESSAGE_BYTES = (
    100  # of a message beyond what the server counts: its subjects, and the protocol's words
)
MB = 1_000_000  # as providers bill
INTERFACES = Path("/sys/class/net")
log = structlog.get_logger("budget")


class Files(NamedTuple):
    """The words of two files: the network in use, and bytes sent and received; an error, or "" if not asked."""

    network: Network | str
    counted: tuple[int, int] | str


class LinkAccount(CommitParticipant):
    """Counts the link's bytes, and keeps them within the budget; lives as long as the daemon.

    Args:
        flush_s: `[frame] age_s_max`.
        set_flush_s: told the age at which points are to be framed.
        wake: has the commit task look again.
        read: returns the text of a file, at most so many bytes of it. Raises: OSError, ValueError.
    """

    def __init__(
        self,
        link: LinkConfig,
        flush_s: float,
        clock: HubClock,
        set_flush_s: Callable[[float], None],
        wake: Callable[[], None],
        read: Callable[[Path, int], str] | None = None,
    ) -> None:
        self.sieve = Sieve()
        self.budget = LinkBudget(flush_s, allowances(link), window_s=link.budget_window_s)
        self._link = link
        self._clock = clock
        self._set_flush_s = set_flush_s
        self._wake = wake
        self._read = read or read_text
        self._meter = Meter()
        self._thinning = ThinningAccount()
        self._totals = dict.fromkeys(KINDS, 0)  # since the start, for metrics
        self._network = Network()
        self._roaming_error = ""
        self._interface_error = ""
        self._save_at_s: float | None = None
        self._wants_save = False
        self._flush_s = flush_s
        # Of the draft that is being written:
        self._nodes: dict[str, int] | None = None
        self._wanted = 1

    def restore(self, meta: dict[str, str | int]) -> None:
        """Go on with the bytes that the ledger remembers; anything else there counts as nothing."""
        if not self.budget.limited or META not in meta:
            return
        try:
            kept = msgspec.json.decode(str(meta[META]))
            meter = Meter(*kept["meter"])
            self.budget.restore(kept["budget"])
        except (msgspec.DecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
            log.warning("link_budget_not_read", error=repr(error))
            return
        self._meter = meter
        self._apply()

    def on_traffic(self, traffic: LinkTraffic) -> None:
        """Take in the leaf server's count of its link's bytes."""
        if not self._link.budget_interface:
            sent = traffic.sent_bytes + MESSAGE_BYTES * traffic.sent_messages
            received = traffic.received_bytes + MESSAGE_BYTES * traffic.received_messages
            self._count(traffic.server, sent, received)

    async def run(self) -> None:
        """Look now and then, for as long as the daemon lives (the caller cancels)."""
        look_s = min(LOOK_S_MAX, self._link.budget_window_s / 4)
        while True:
            self.take(await asyncio.to_thread(self.read_files))
            self.step()
            await asyncio.sleep(look_s)

    def step(self) -> None:
        """Look at the budget once; have flushes and thinning follow."""
        roaming = self._link.roaming
        if self._network != Network():
            abroad = is_roaming(self._network, roaming.interfaces, roaming.home_mcc)
            self.budget.enter(ROAMING if abroad else HOME)
        clock = self._clock
        known = clock.quality is not Quality.UNSET
        before = self.budget.shortage
        self.budget.step(clock.monotonic_s(), clock.now_ns() if known else None)
        if (short := self.budget.shortage) and not before:
            log.warning("link_budget_short", period=short.period, most=short.kind)
        elif before and not short:
            log.info("link_budget_enough")
        self._apply()
        if self._thinning.due(self.budget.keep_one_of, clock.monotonic_s()):
            self._wake()

    def status(self) -> dict[str, Any]:
        """Return the part of the link's status about its bytes."""
        roaming = self._link.roaming
        said = {
            **self.budget.status(),
            "kinds": dict(self._totals),
            "keeps_one_of": self.sieve.keep_one_of,
            "thinned_points": self.sieve.thinned,
            "counted_at": self._link.budget_interface or "leaf server",
            "error": self._interface_error or self._roaming_error,
        }
        if roaming.file:
            said["network"] = {"interface": self._network.interface, "mcc": self._network.mcc}
        return {"budget": said}

    def due_s(self) -> float | None:
        """Return when bytes are to be remembered, or the hub is to be told of thinning."""
        if self._thinning.due(self.budget.keep_one_of, self._clock.monotonic_s()):
            return AT_ONCE_S
        return self._save_at_s

    def contribute(self, draft: Draft) -> None:
        """Have the bytes remembered, and the hub told of thinning."""
        self._wanted = self.budget.keep_one_of
        due = self._thinning.due(self._wanted, draft.now_s)
        if due or (draft.stopping and self._thinning.said > 1):
            self._nodes = self.sieve.told()
            draft.changes.messages += marked([self._event(self._nodes)], draft.boot)
        saving = self._save_at_s is not None and (draft.now_s >= self._save_at_s or draft.stopping)
        self._wants_save = saving or (due and self.budget.limited)
        if self._wants_save:
            kept = {"budget": self.budget.kept(), "meter": self._meter.kept()}
            draft.changes.meta[META] = msgspec.json.encode(kept).decode()

    def committed(self, draft: Draft) -> None:
        """Count the written messages; thinning takes effect now that the hub will hear of it."""
        for message in draft.changes.messages:
            size = len(message.subject) + len(message.body) + MESSAGE_BYTES
            self.budget.written(kind_of(message.subject), size)
        if self._nodes is not None:
            self._thinning.made(self._wanted, draft.now_s)
            self.sieve.set(self._wanted)
            log.warning("telemetry_thinned", keep_one_of=self._wanted, since_last=self._nodes)
            self._nodes = None
        if self._wants_save:
            self._save_at_s = None

    def put_back(self, refusal: RefusedError) -> None:
        """Tell of thinning with the next commit."""
        if self._nodes is not None:
            self.sieve.untold(self._nodes)
            self._nodes = None

    def _event(self, nodes: dict[str, int]) -> Outgoing:
        short = self.budget.shortage
        reason = f"link budget of the {short.period}" if short else "link budget: room again"
        body = thinned_event(self._wanted, nodes, reason)
        return event("thinned", body, self._clock.now_ns())

    def _apply(self) -> None:
        if self.budget.flush_s != self._flush_s:
            self._flush_s = self.budget.flush_s
            self._set_flush_s(self._flush_s)
            self._wake()  # a shorter age may be due already

    def _count(self, source: str, sent: int, received: int) -> None:
        sent, received = self._meter.read(source, sent, received)
        if not sent and not received:
            return
        before = dict(self.budget.usage[self.budget.profile]["month"].bytes)
        self.budget.carried(sent, received)
        for kind, size in self.budget.usage[self.budget.profile]["month"].bytes.items():
            self._totals[kind] += size - before[kind]
        if self.budget.limited and self._save_at_s is None:
            self._save_at_s = self._clock.monotonic_s() + SAVE_S
            self._wake()

    def read_files(self) -> Files:
        """Read in a thread: a file of another program's may stand on a slow disk."""
        network: Network | str = ""
        if file := self._link.roaming.file:
            try:
                network = read_network(self._read(Path(file), FILE_BYTES_MAX))
            except (OSError, ValueError) as error:
                network = f"{file}: {error}"
        counted: tuple[int, int] | str = ""
        if name := self._link.budget_interface:
            place = INTERFACES / name / "statistics"
            try:
                counted = (
                    int(self._read(place / "tx_bytes", 32)),
                    int(self._read(place / "rx_bytes", 32)),
                )
            except (OSError, ValueError) as error:
                counted = f"{place}: {error}"
        return Files(network, counted)

    def take(self, files: Files) -> None:
        """Take in the files' words; if one cannot be read, its last word stays."""
        if isinstance(files.network, Network):
            self._network, self._roaming_error = files.network, ""
        else:
            self._roaming_error = files.network
        if isinstance(files.counted, str):
            self._interface_error = files.counted
        else:
            self._interface_error = ""
            self._count(f"interface {self._link.budget_interface}", *files.counted)


def allowances(link: LinkConfig) -> dict[str, LinkAllowance]:
    """Return the limits of each profile; roaming without budgets of its own has those of home."""
    home = LinkAllowance(
        round(link.budget_mb_day * MB), round(link.budget_mb_month * MB), link.budget_flush_s_max
    )
    roaming = link.roaming
    if not (roaming.budget_mb_day or roaming.budget_mb_month):
        return {HOME: home, ROAMING: home}
    away = LinkAllowance(
        round(roaming.budget_mb_day * MB),
        round(roaming.budget_mb_month * MB),
        roaming.budget_flush_s_max or link.budget_flush_s_max,
    )
    return {HOME: home, ROAMING: away}


def read_text(path: Path, bytes_max: int) -> str:
    """Return the beginning of a file as text. Raises: OSError; UnicodeDecodeError, a ValueError."""
    with path.open("rb") as file:
        return file.read(bytes_max).decode()
