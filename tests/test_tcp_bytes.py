"""Bytes of TCP connections, as the kernel counts them."""

from __future__ import annotations

import pytest

from tests.support.errors import TrialError
from tests.support.leafs.tcp_bytes import TcpBytes, counted

# As `ss -tinH` prints it, the addresses and all but some fields left out.
SOCKETS = """\
0      0          127.0.0.1:7422   127.0.0.1:40000
\t cubic rto:204 bytes_sent:120 bytes_acked:100 bytes_received:30 segs_out:5 segs_in:4
0      0          127.0.0.1:7422   127.0.0.1:40002
\t cubic rto:204 bytes_received:12 segs_out:1 segs_in:2
"""


def test_the_bytes_of_all_sockets_are_summed_up() -> None:
    found = counted(SOCKETS)
    assert found == TcpBytes(connections=2, received=42, sent=100, segments=12)
    assert found.carried == 142
    assert found.on_the_wire == 142 + 12 * 52
    assert counted("") == TcpBytes(0, 0, 0, 0)


def test_a_connection_that_came_or_went_meanwhile_is_no_measurement() -> None:
    before = TcpBytes(connections=2, received=42, sent=100, segments=12)
    after = TcpBytes(connections=2, received=50, sent=130, segments=20)
    assert after.since(before) == TcpBytes(2, 8, 30, 8)
    with pytest.raises(TrialError, match="2 connections, then 3"):
        after._replace(connections=3).since(before)
