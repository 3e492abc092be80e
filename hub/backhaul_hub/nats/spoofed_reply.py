"""Whether a message was really sent under the subject that it shows.

Of what comes from a leaf, or over the route between two servers of a cluster, nats-server takes a
reply subject `$JS.ACK.<stream>.<consumer>.<four numbers and more>@<subject>` for a delivery of
JetStream: it matches permissions, imports and subscriptions by the true subject, and tells the
receiver the one behind the `@`. So a device that may publish `clk.VID-001` could ask as any other.
The part before the `@` stays: by it such a message is known (docs/security.md).
"""

from __future__ import annotations

_DELIVERY = "$JS.ACK."


def is_spoofed(reply: str) -> bool:
    """Tell by its reply subject whether a message may show another subject than it was sent under.

    Ask before believing a subject about who has sent something. Nobody who asks a service of the hub
    has a reason for such a reply.
    """
    return reply.startswith(_DELIVERY)
