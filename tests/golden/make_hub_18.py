"""Write hub-18: `python -m tests.golden.make_hub_18 DIR` (by hand, once: what it is good for is that it does not follow the code).

It is hub-14 as schema 18 has it, and in the tables that came since are rows that the hub's parts wrote: dictionaries and
messages that wait for one, alerts, silences, notices, links to the page and a browser that is logged in.
"""

from __future__ import annotations

import asyncio
import json
import lzma
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from backhaul_hub.alerts import rows as alert_rows
from backhaul_hub.alerts.alert import AlertKey, AlertRecord
from backhaul_hub.alerts.plan import Notice, ToldSoFar
from backhaul_hub.alerts.silences import AlertSilence
from backhaul_hub.db.change import RowChange
from backhaul_hub.db.store import Registry
from backhaul_hub.people import page_rows
from backhaul_hub.people.page_rows import PageLink, PageSession

from . import hub_says
from .files import restore
from .keys import take_seeds

if TYPE_CHECKING:
    from collections.abc import Sequence

NAME = "hub-18"
_T0_NS = 1_800_000_000_000_000_000
_HOUR_NS = 3_600_000_000_000


def _changes() -> Sequence[RowChange]:
    later_ns = _T0_NS + _HOUR_NS
    hot = AlertRecord(
        id="1" * 16,
        key=AlertKey("rule", "VID-001", "too-hot", "battery.temp"),
        severity="critical",
        text="61 °C, above 60 °C",
        hint="let it cool",
        since_ns=_T0_NS,
        heard_ns=_T0_NS + 1,
        seen_ns=later_ns,
        acked_ns=later_ns,
        acked_by="anna",
        note="on my way",
    )
    down = AlertRecord(
        id="2" * 16,
        key=AlertKey("rule", "VID-002", "too-wet", ""),
        severity="warning",
        text="it rains",
        hint="",
        since_ns=_T0_NS,
        heard_ns=_T0_NS,
        seen_ns=later_ns,
        late=True,
        ended_ns=later_ns,
        ended_why="cleared",
    )
    notices = [Notice(f"n{at}", "ops", "raised", hot, _T0_NS + at) for at in range(3)]
    link = PageLink("a" * 64, "anna", _T0_NS, later_ns)
    session = PageSession("U" + "A" * 55, "anna", _T0_NS + 5, later_ns // 10**9)
    return [
        RowChange(
            "INSERT INTO dictionary VALUES (?, ?, ?, ?, ?)",
            [("VID-001", "d1", b"\x00words\xff", _T0_NS, later_ns)],
        ),
        RowChange(
            "INSERT INTO awaited_dictionary VALUES (?, ?, ?, ?, ?, ?, ?)",
            [("VID-002", "d2", "UP_00", 3, 9, 5, _T0_NS)],
        ),
        *alert_rows.alert_changes([hot, down]),
        *alert_rows.told_changes({hot.id: {"ops": ToldSoFar(2, later_ns)}}),
        *alert_rows.silence_changes(
            [
                AlertSilence(1, "plant-7", "*", _T0_NS, later_ns, "anna", "new pumps"),
                AlertSilence(2, "fleet", "", _T0_NS, later_ns, "olga", "", later_ns, "olga"),
            ]
        ),
        *alert_rows.notice_changes(notices),
        alert_rows.leaving("m1", notices[:2]),
        alert_rows.sent("m1", later_ns),
        alert_rows.position_change("TWIN_EVENTS", alert_rows.Position("2027-01-15T08:00:00Z", 77)),
        *page_rows.add_link(link),
        *page_rows.add_link(PageLink("b" * 64, "olga", _T0_NS, later_ns)),
        *page_rows.use_link(link, session),
    ]


async def _fill(path: Path) -> dict[str, object]:
    async with await Registry.open(path) as registry:
        await registry.write(_changes())
        says = {"says": await hub_says.says(registry) | await hub_says.says_since_14(registry)}
    with closing(sqlite3.connect(path)) as db:
        dump = [*db.iterdump()]
        [version] = db.execute("PRAGMA user_version").fetchone()
        [application] = db.execute("PRAGMA application_id").fetchone()
    pragmas = f"PRAGMA application_id = {application};\nPRAGMA user_version = {version};\n"
    script = take_seeds("\n".join([*dump, pragmas]).encode())
    (Path(sys.argv[1]) / f"{NAME}.sql.xz").write_bytes(lzma.compress(script, preset=9))
    async with await Registry.open(path) as registry:
        return says | {"goes on": await hub_says.go_on(registry)}


def main() -> None:
    """Write both files."""
    with tempfile.TemporaryDirectory() as directory:
        said = asyncio.run(_fill(restore("hub-14", Path(directory) / "hub.db")))
    text = json.dumps(said, ensure_ascii=False, sort_keys=True, indent=0)
    (Path(sys.argv[1]) / f"{NAME}.json.xz").write_bytes(lzma.compress(text.encode(), preset=9))


if __name__ == "__main__":
    main()
