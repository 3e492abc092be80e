"""A vehicle's report on itself, beside its lanes: its machine, its software, its health.

It goes along with a question for the time (``"vehicle"`` on ``clk.<device>``), over core NATS, stored
nowhere: when the link comes up, when something changes, and with each question that is asked anyway. Names
are short: on a metered link each byte is paid for. Pure.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from backhaul_codec.strict.json import Reader

CONDITIONS_MAX = 16
ABOUT_CHARACTERS_MAX = 64
REPORT_BYTES_MAX = 4096
PERCENT_MAX = 1_000_000
LINK_KINDS = ("telemetry", "state", "events", "system", "housekeeping")
"""The kinds of a link's bytes (docs/link.md#a-budget), in the order in which a report has them."""

# \Z: $ lets a newline pass.
# \Z and not $, which lets a newline pass at the end.
_Hex = Annotated[str, Meta(pattern=r"^[0-9a-f]{0,32}\Z")]
_Percent = Annotated[int, Meta(ge=0, le=PERCENT_MAX)]
_Kilobytes = Annotated[int, Meta(ge=0, lt=1 << 53)]
_Code = Annotated[str, Meta(pattern=r"^[a-z][a-z0-9-]{0,39}\Z")]
_About = Annotated[str, Meta(pattern=rf"^[ -~]{{0,{ABOUT_CHARACTERS_MAX}}}\Z")]
_Version = Annotated[str, Meta(pattern=r"^[0-9A-Za-z.+_-]{0,40}\Z")]


class VehicleReport(msgspec.Struct, frozen=True, omit_defaults=True):
    """One report.

    ``machine``: stays for as long as the agent runs on the same machine; a hash of what the machine is
    known by, never that itself. ``boot``: changes with each start of the machine. ``run``: changes with
    each start of the agent; drawn at random. ``ledger_pct``: what the ledger holds of what it may;
    ``disk_pct``: what is taken of its disk; None where nobody can tell. ``budget_pct``: the part of the
    link's budget that is used, of the day or the month, the larger; None where there is none. ``link_kb``: the
    bytes of the link in this month, both ways, of each of `LINK_KINDS`, in units of 1,000; empty if the agent is older.
    ``conditions``: codes of what is
    shown on the vehicle, each with what it is about; the worst first.
    """

    machine: _Hex = msgspec.field(name="m")
    boot: _Hex = msgspec.field(name="b")
    run: _Hex = msgspec.field(name="r")
    version: _Version = msgspec.field(name="v")
    ledger_pct: _Percent | None = msgspec.field(name="l", default=None)
    disk_pct: _Percent | None = msgspec.field(name="d", default=None)
    conditions: Annotated[tuple[tuple[_Code, _About], ...], Meta(max_length=CONDITIONS_MAX)] = (
        msgspec.field(name="c", default=())
    )
    budget_pct: _Percent | None = msgspec.field(name="u", default=None)
    link_kb: Annotated[tuple[_Kilobytes, ...], Meta(max_length=len(LINK_KINDS))] = msgspec.field(
        name="k", default=()
    )


_read = Reader(VehicleReport).read


def read_report(data: bytes) -> VehicleReport:
    """Return a vehicle's report on itself.

    Raises:
        ValueError: it is none, or longer than `REPORT_BYTES_MAX`.
    """
    if len(data) > REPORT_BYTES_MAX:
        raise ValueError(f"a report of {len(data)} bytes")
    return _read(data)


def printable(about: str) -> str:
    """Return the subject of a condition as a report may hold it: ASCII, and not long."""
    text = "".join(letter if " " <= letter <= "~" else "?" for letter in about)
    return text[:ABOUT_CHARACTERS_MAX]
