"""Read the hub's own writes to the series that configure rules, from DOWN. No Spark.

DOWN keeps the newest message of a subject. So of a series there is the last value, and when it was written;
what the hub had written before is kept nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from backhaul_spark.decode.sample_batch import Batch, HeadWord
from backhaul_spark.nats.offsets import Span
from backhaul_spark.rules.plan import Plan
from backhaul_spark.source.jetstream_source import SourceSettings, read_span


def hub_heads(source: Mapping[str, str], plan: Plan) -> list[HeadWord]:
    """Return the newest config points of the plan's that the hub has written to any device.

    Args:
        source: where the hub is: `servers`, `credentials` .. of a login that reads DOWN.
        plan: the rules.

    Raises:
        BackhaulSparkError: nobody answers there, or the login may not read DOWN.
    """
    heads = ",".join(map(str, plan.heads))
    wanted = {"streams": "DOWN_*", "format": "samples", "heads": heads, "buckets": "1"}
    settings = SourceSettings(dict(source) | wanted | {"onGap": "record"})
    found: list[HeadWord] = []
    for info in settings.streams().values():
        if not info.messages:
            continue  # first_seq and last_seq are no span: of a new stream both are 0
        for rows in read_span(settings, Span(info.name, info.first_seq, info.last_seq)):
            columns = (rows.column(name).to_pylist() for name in ("messages", "samples", "said"))
            for packed in zip(*columns, strict=True):
                # A restore stores them anew. When the hub wrote each one stays, within the milliseconds to its storing.
                found += [replace(head, stored_ns=0) for head in Batch.unpack(*packed).heads]
    return found
