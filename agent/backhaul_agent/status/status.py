"""The answer to ``agent.status``: everything an operator or a test asks a running agent."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from backhaul_agent.ledger.damage import asides

if TYPE_CHECKING:
    from backhaul_agent.artifacts.manager import Artifacts
    from backhaul_agent.commands.service import CommandService
    from backhaul_agent.commit.writer import Writer
    from backhaul_agent.downlink.downlink import Downlink
    from backhaul_agent.ingest.listener import Listener
    from backhaul_agent.leaf.connection import Link
    from backhaul_agent.leaf.store_health import LeafStore
    from backhaul_agent.ledger.ledger import Ledger
    from backhaul_agent.metered.controller import Visits
    from backhaul_agent.status.health_watch import HealthWatch
    from backhaul_agent.sync.digests import Digests
    from backhaul_agent.time_sync.timekeeper import Timekeeper
    from backhaul_agent.uplink.flow_control import Flow
    from backhaul_agent.uplink.lane import Lane

STATUS_SUBJECT = "agent.status"


def status(
    *,
    device: str,
    uptime_s: float,
    ledger: Ledger,
    writer: Writer,
    lanes: list[Lane],
    link: Link,
    listener: Listener,
    downlink: Downlink,
    digests: Digests,
    flow: Flow,
    visits: Visits,
    leaf_store: LeafStore,
    timekeeper: Timekeeper,
    commands: CommandService,
    artifacts: Artifacts,
    health: HealthWatch,
) -> dict[str, Any]:
    """Return the agent's state as JSON-ready values; sizes in bytes, times in seconds."""
    counters = writer.counters
    errors = [
        counters.last_error,
        leaf_store.error,
        *(lane.last_error for lane in lanes),
        downlink.last_error,
    ]
    return {
        "device": device,
        "epoch": ledger.epoch,
        "machine": asdict(health.report.machine),
        "uptime_s": round(uptime_s, 3),
        "memory_bytes_max": memory_bytes_max(),
        "conditions": [condition.as_json() for condition in health.shown],
        "connects": link.connects,
        "connected": link.client is not None,
        "last_error": next(filter(None, errors), ""),
        "clock": timekeeper.status(),
        "lanes": {lane.name: lane_status(lane, ledger) for lane in lanes},
        "link": visits.status() | flow.status(),
        "leaf": leaf_store.status(),
        "ledger": {
            "path": str(ledger.path),
            "bytes": ledger.budget.used,
            "bytes_max": ledger.budget.bytes_max,
            "full": ledger.budget.full,
            "disk_full": bool(ledger.budget.disk),
            "reserve_held": writer.room.reserve.held,
            "staged_points": writer.buffered_points,
            "epoch": str(writer.gate.epochs.verdict),
            "former_epochs_owed": len(
                {lane.epoch for lane in ledger.closed.values() if not lane.whole}
            ),
            "compared_epochs": len(
                {epoch for lane in lanes for epoch in lane.confirmations.compared}
            ),
            "suspect_points": writer.gate.suspects.points,
            "forgotten_messages": ledger.forgotten,
            "evicted_messages": writer.room.evicted,
            "quarantined_rows": ledger.quarantined,
            "set_aside": ", ".join(map(str, asides(ledger.path))),
        },
        "heads": {
            "count": len(writer.keeper.heads),
            "damaged_rows": writer.keeper.damaged,
            "edges_left_out": len(writer.keeper.tree.left_out),
            # When the hub last compared and found any; None: it has not complained since.
            "nodes_differing": digests.differing,
        },
        "commands": commands.status(),
        "programs": listener.floods.as_json(),
        "artifacts": {"refused": dict(artifacts.room.refused)},
        "counters": {
            "messages_received": listener.received,
            "points_kept": counters.points_kept,
            "points_refused_by_storage": counters.points_refused,
            "refused": dict(listener.refusals.counts),
            "commits": counters.commits,
            "commits_failed": counters.commits_failed,
            "frames": counters.frames,
            "downlink_messages": downlink.messages,
            "downlink_garbage": downlink.garbage,
        },
    }


def lane_status(lane: Lane, ledger: Ledger) -> dict[str, Any]:
    """Return one lane's part of the status: seqs of the ledger, and its present work."""
    appender, committed = lane.appender, ledger.lanes[lane.name]
    # While what is left of former epochs goes first, nothing of this one is in OUT.
    of_this = appender.epoch == ledger.epoch
    return {
        "epoch": appender.epoch,
        "state": str(appender.state),
        "last_seq": committed.last_seq,
        "ready_seq": committed.ready_seq,
        "appended": appender.appended if of_this else 0,
        "watermark": appender.watermark if of_this else committed.watermark,
        "outstanding_bytes": appender.outstanding_bytes,
        "waits_for_hub": appender.stalled_by_hub,
        "foreign_messages": lane.foreign_messages,
        "last_error": lane.last_error,
    }


def memory_bytes_max() -> int:
    """Return the most memory this process has had resident; 0 where /proc does not say.

    Not `ru_maxrss`: that is inherited over fork and exec, so it speaks of whoever started us.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return 0
    kilobytes = next((line.split()[1] for line in lines if line.startswith("VmHWM:")), "0")
    return int(kilobytes) * 1024
