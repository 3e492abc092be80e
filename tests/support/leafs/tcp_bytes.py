"""The bytes that passed the TCP connections of a port, both ways, as the kernel counts them (`ss -ti`)."""

from __future__ import annotations

import asyncio
import re
from typing import NamedTuple

from tests.support.errors import TrialError

_HEADER_BYTES = 52
"""Of IPv4 and TCP with time stamps, each segment."""
_FIELD = re.compile(r"\b(bytes_acked|bytes_received|segs_out|segs_in):(\d+)")


class TcpBytes(NamedTuple):
    """What a server's connections have carried since each was made, without those that are gone."""

    connections: int
    received: int
    sent: int
    segments: int

    @property
    def carried(self) -> int:
        """Return the bytes of both ways, without headers of TCP and IP."""
        return self.received + self.sent

    @property
    def on_the_wire(self) -> int:
        """Return the bytes of both ways with them."""
        return self.carried + self.segments * _HEADER_BYTES

    def since(self, before: TcpBytes) -> TcpBytes:
        """Return what passed since another look; all connections stood meanwhile."""
        if self.connections != before.connections:
            raise TrialError(f"{before.connections} connections, then {self.connections}")
        return TcpBytes(
            self.connections, *(now - then for now, then in zip(self[1:], before[1:], strict=True))
        )


async def tcp_bytes(*ports: int) -> TcpBytes:
    """Count what the connections have carried that servers have taken at these ports of this machine.

    Raises:
        TrialError: `ss` of iproute2 is not there, or failed.
    """
    which = " or ".join(f"sport = :{port}" for port in ports)
    try:
        process = await asyncio.create_subprocess_exec(
            *("ss", "-tinH", "state", "established", f"( {which} )"),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except FileNotFoundError:
        raise TrialError("ss is not installed: it comes with iproute2") from None
    output, errors = await process.communicate()
    if process.returncode:
        raise TrialError(f"ss: {errors.decode().strip()}")
    return counted(output.decode())


def counted(text: str) -> TcpBytes:
    """Sum up what `ss -tin` says; a connection that has carried nothing one way says nothing of that."""
    sums = {"bytes_acked": 0, "bytes_received": 0, "segs_out": 0, "segs_in": 0}
    for name, number in _FIELD.findall(text):
        sums[name] += int(number)
    connections = sum(1 for line in text.splitlines() if line and not line[0].isspace())
    return TcpBytes(
        connections,
        sums["bytes_received"],
        sums["bytes_acked"],
        sums["segs_out"] + sums["segs_in"],
    )
