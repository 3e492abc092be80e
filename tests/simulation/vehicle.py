"""The vehicle: its lanes, which are started, connected, cut off and killed together."""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING

from backhaul_agent.epochs import Verdict
from backhaul_agent.resend import Ask
from backhaul_codec import Point
from backhaul_codec.merge import HeadKey
from tests.simulation.models import Message, OutModel

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

from tests.simulation.lane_shell import LANES, Cores, Known, LaneShell, Ledger


class Vehicle:
    """One vehicle: its ledger, its leaf server's streams, its agent while it runs."""

    expects = True
    asks_first = True

    def __init__(
        self,
        random: Random,
        cores: Cores,
        now_ns: int,
        ask_hub: Callable[[int], Known | None],
    ) -> None:
        self.random = random
        self._ask_hub = ask_hub
        self.cores = cores
        self.faulty = True
        self.now_ns = now_ns
        self.clock_error_ns = 0
        self._streams = 0
        self._outs: dict[str, OutModel] = {}
        self.ledger = Ledger(self._draw_epoch())
        self.acknowledged: dict[int, Message] = {}
        """Point id to the message that carries it, as it was acknowledged."""
        self.uncertain: set[int] = set()
        """Ids of which nobody may know: their ledger was deleted, or an old copy was put back."""
        self.forgotten: set[tuple[str, int, int]] = set()
        self._next_id = 1
        self._copy: tuple[Ledger, dict[str, OutModel], int] | None = None
        self.lanes: dict[str, LaneShell] = {}
        self.heads = cores.heads()
        self.restart()

    def out(self, name: str) -> OutModel:
        """Return a lane's OUT stream, made if it is not there."""
        if name not in self._outs:
            self._streams += 1
            self._outs[name] = OutModel(f"{name} {self._streams}")
        return self._outs[name]

    def commit(self, lane: str, kind: str, body: object) -> Message:
        """Write one message to the ledger, durably."""
        self._decide()
        row = self.ledger.lanes[lane]
        time_ns = self.now_ns + self.clock_error_ns
        message = Message(lane, self.ledger.epoch, row.next_seq, kind, body, time_ns)
        self.ledger.rows[lane, self.ledger.epoch, row.next_seq] = message
        row.next_seq += 1
        return message

    def publish(self, lane: str, points: int) -> None:
        """Acknowledge some points."""
        ids = tuple(range(self._next_id, self._next_id + points))
        self._next_id += points
        message = self.commit(lane, "points", ids)
        self.acknowledged.update(dict.fromkeys(ids, message))

    def write_head(self, point: Point) -> None:
        """Write a config point."""
        self._merge(point)
        self.commit("live", "head", point)

    def mark(self, why: str) -> None:
        """Say how far the lanes are: those of the epoch that the mark will be in."""
        self._decide()
        lanes = {name: row.next_seq - 1 for name, row in self.ledger.lanes.items()}
        self.commit("live", "mark", (lanes, why))

    def take(self, seq: int, subject: str, body: object) -> None:
        """Take in a message of IN, once."""
        if subject.startswith("p."):
            assert isinstance(body, Point)
            self._merge(body)
        elif subject.startswith("s.resend."):
            assert isinstance(body, Ask)
            self.lanes[subject.split(".")[2]].ask(body)
        elif subject.startswith("s.watermark."):
            self._watermark(subject.split(".")[2], body)
        self.ledger.in_seq = seq

    def work(self, turns: int, now_s: float) -> None:
        """Let the agent run."""
        for lane in self.lanes.values():
            lane.work(turns, now_s)
        if self.epochs.verdict is Verdict.OVER:
            self._open_epoch()

    @property
    def goes_on(self) -> bool:
        """Whether the current epoch does."""
        return self.epochs.verdict is Verdict.GOES_ON

    def hear_hub(self) -> None:
        """Learn how far the hub holds former epochs, if it can be asked."""
        former = {lane.epoch for lane in self.ledger.closed.values() if not lane.whole}
        for epoch in sorted(former):
            for lane, (_, held) in (self._ask_hub(epoch) or {}).items():
                self._watermark(lane, (epoch, held))

    def restart(self) -> None:
        """Begin with what the disk holds: kill -9, and start."""
        self._begin(fresh=not self.asks_first)
        for lane in self.lanes.values():
            lane.look_at_out()
        known = self._ask_hub(self.ledger.epoch)
        if known is not None:
            self.epochs.hub_knows({lane: highest for lane, (highest, _) in known.items()})
        self.mark("start")

    def lose_power(self) -> None:
        """Lose what the leaf server had not synced, and start with what the disks hold."""
        self.restart_leaf(power_cut=True)
        self.restart()

    def _begin(self, *, fresh: bool) -> None:
        self.epochs = self.cores.epochs(
            fresh=fresh, lanes=LANES, last_seq=lambda lane: self.ledger.lanes[lane].last_seq
        )
        self.epochs.note_link(up=False, now_s=0.0)
        self.lanes = {name: LaneShell(self, name) for name in LANES}
        self.heads = self.cores.heads()
        for key, point in self.ledger.heads.items():
            self.heads.offer(key.parent, point)
        for lane in self.lanes.values():
            lane.connect()

    def restart_leaf(self, *, power_cut: bool = False) -> None:
        """Kill the leaf server; after a power cut its streams may have lost their ends."""
        for out in self._outs.values():
            if power_cut:
                out.lose_power(self.random)
        for lane in self.lanes.values():
            lane.disconnect()
            lane.connect()

    def wipe_leaf(self) -> None:
        """Lose the leaf server's whole store."""
        self._outs.clear()
        for lane in self.lanes.values():
            lane.disconnect()
            lane.resends.lost()
            lane.connect()

    def sync_leaf(self) -> None:
        """Let the leaf's store reach the disk."""
        for out in self._outs.values():
            out.synced_seq = out.last_seq

    def copy_ledger(self) -> None:
        """Take a copy of the disk, to be put back some time."""
        outs = {name: out.copy() for name, out in self._outs.items()}
        self._copy = deepcopy(self.ledger), outs, self._next_id

    def put_copy_back(self, *, whole_disk: bool = False) -> None:
        """Restore the old copy of the ledger: what was acknowledged since is not in it.

        With the whole disk the leaf's streams go back too, and nothing on the vehicle can tell.
        """
        if self._copy is None:
            return
        ledger, outs, next_id = self._copy
        self.uncertain |= set(range(next_id, self._next_id))
        self.ledger = deepcopy(ledger)
        if whole_disk:
            self._outs = {name: out.copy() for name, out in outs.items()}
        self.restart()

    def delete_ledger(self) -> None:
        """Lose the ledger; the leaf's streams are still there."""
        self.uncertain |= set(range(1, self._next_id))
        self._copy = None
        self.ledger = Ledger(self._draw_epoch())
        self._begin(fresh=True)
        self.mark("start")

    def forget(self) -> None:
        """Give up some of what the hub has confirmed: the budget."""
        for row in [*self.ledger.closed.values(), *self.ledger.lanes.values()]:
            name, epoch = row.name, row.epoch
            seqs = [each[2] for each in self.ledger.rows if each[:2] == (name, epoch)]
            for seq in sorted(seqs)[: len(seqs) // 2]:
                if seq <= row.watermark:
                    del self.ledger.rows[name, epoch, seq]
                    self.forgotten.add((name, epoch, seq))

    def _watermark(self, lane: str, body: object) -> None:
        assert isinstance(body, tuple)
        epoch, seq = body
        shell, row = self.lanes[lane], self.ledger.lane(lane, epoch)
        if row is None or shell.claims(epoch, seq):
            return
        seq = min(seq, row.last_seq)
        if shell.appender.epoch == epoch:
            shell.appender.set_watermark(seq)
        row.watermark, row.confirmed = seq, max(seq, row.confirmed)

    def _merge(self, point: Point) -> None:
        merged = self.heads.offer("", point)
        if merged.changed:
            key = HeadKey.of("", point)
            self.ledger.heads[key] = merged.head.to_point(key)

    def _decide(self) -> None:
        """Settle under which epoch to commit; nobody in this model waits for the hub's word."""
        self.epochs.may_commit(0.0, urgent=True)
        if self.epochs.verdict is Verdict.OVER:
            self._open_epoch()

    def _open_epoch(self) -> None:
        """Go on under a new epoch; what the old one still owes leaves first."""
        old, lanes = self.ledger.epoch, self.ledger.lanes
        last_seqs = {name: row.last_seq for name, row in lanes.items()}
        self.ledger.open(self._draw_epoch())
        self.epochs.opened()
        self.commit("live", "epoch", (old, last_seqs))

    def _draw_epoch(self) -> int:
        return self.random.randint(1, (1 << 32) - 1)
