"""Measure what a real gateway costs on its link, beside what others send for the same work.

Modelled: 30 nodes whose values walk at random, over loopback and over a round trip of 100 ms, while they
work, while nothing is said, and after a cut. Bytes are TCP payload in both directions at a relay, all that
passes while the work goes on; in rows b to e after a minute and a half of the same work, which is counted apart, for all alike. The connection's set-up and TCP/IP headers are not in it. Each reading's
arrival at the hub is checked. Beside backhaul, in the same run: plain NATS that sources a stream (a JSON
message a point, a node, or a second), Sparkplug B at QoS 1 through an MQTT broker (a DDATA a second), and the
floor: one self-contained message with names, deflated, and nothing around it.
"""

from __future__ import annotations


def run(*, quick: bool) -> dict[str, object]:
    """Measure the chosen rows (`options`), print the table, and return it.

    Raises:
        ExceptionGroup: some part broke or lost data; the table of the others is printed before.
    """
    # Only now: the command line asks for the options alone, whatever it is to run.
    from benchmarks.gateway.report import measure

    return measure(quick=quick)
