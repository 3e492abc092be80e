"""Take one series out of a frame, as fast as the standard library can.

For history at the edge, where a ledger's frames are scanned on a small machine. A frame that cannot
have what is asked for is left after a glance; in the others, work is done in C for each point, and
in Python only for points of the series.
"""

from __future__ import annotations

from array import array
from functools import lru_cache
from itertools import accumulate, compress
from typing import Any

from backhaul_codec.errors import CodecError
from backhaul_codec.points import INT64_MAX, INT64_MIN, Kind, Value
from backhaul_codec.wire.envelope import unseal
from backhaul_codec.wire.frame_fields import Field
from backhaul_codec.wire.frame_layout import Layout, prove, read_fields
from backhaul_codec.wire.frame_points import column_entries, series_places, values_at
from backhaul_codec.wire.messages import require_node

Selected = tuple["array[int]", list["Value"]]


def select(
    message: bytes, type: str, key: str, from_ns: int, to_ns: int, *, node: str | None = None
) -> Selected:
    """Return the times and values of one series, those with `from_ns <= time < to_ns`.

    In order of arrival, without deleted points (an odd tombstone). `node` is the one of the
    subject, if that is to be proven; of a bundle, it is the node whose series is asked for.

    Raises: CodecError, as `decode` does; `kind` for a message that is no frame. A frame that has
    no such point may be found damaged, or not.
    """
    header, body = unseal(message)
    if header.kind not in (Kind.FRAME, Kind.BUNDLE):
        raise CodecError(f"a {header.kind.name.lower()} is no frame", "kind")
    bundle = header.kind is Kind.BUNDLE
    fields = read_fields(body)
    if _cannot_have(fields, type, from_ns, to_ns):
        return array("q"), []
    layout = prove(fields, len(body), bundle=bundle)
    if not bundle:
        require_node(layout, node)
    series = _series_of(layout, type, key, node)
    if not series:
        return array("q"), []
    mask = _mask(layout, series)
    times = _times(layout, mask)
    values = _values(layout, series, mask)
    if layout.tomb is None and min(times) >= from_ns and max(times) < to_ns:
        return times, values
    keep = [from_ns <= time < to_ns for time in times]
    if layout.tomb is not None:
        tombs = compress(layout.tomb, mask)
        keep = [good and not tomb & 1 for good, tomb in zip(keep, tombs, strict=True)]
    return array("q", compress(times, keep)), list(compress(values, keep))


def _cannot_have(fields: dict[int, Any], type_: str, from_ns: int, to_ns: int) -> bool:
    """Tell from fields that are not proven yet that no point of the frame is asked for."""
    n, t0, unit = fields.get(Field.N), fields.get(Field.T0), fields.get(Field.UNIT)
    dt, types = fields.get(Field.DT), fields.get(Field.TYPES)
    if isinstance(types, list) and type_ not in types:
        return True
    if not (isinstance(n, int) and isinstance(t0, int) and isinstance(unit, int)):
        return False
    if not isinstance(dt, bytes) or n < 1 or unit < 1 or len(dt) > 8 * (n - 1):
        return False
    low, high = _span(dt, n - 1)
    low, high = t0 + unit * low, t0 + unit * high
    return low >= INT64_MIN and high <= INT64_MAX and (high < from_ns or low >= to_ns)


def _span(dt: bytes, count: int) -> tuple[int, int]:
    """Return how far before and after t0 the points may lie at most, in units.

    Exact where time never goes back, which the highest bytes tell; else as far as the width of the
    differences could lead, all in the same direction. Both without a look at each of them.
    """
    if not count:
        return 0, 0
    planes = [dt[at : at + count] for at in range(0, len(dt), count)]
    if planes and planes[-1].isascii():
        return 0, sum(sum(plane) << 8 * number for number, plane in enumerate(planes))
    reach = count << (8 * len(planes)) >> 1
    return -reach, reach


def _series_of(layout: Layout, type_: str, key: str, node: str | None) -> list[int]:
    """Return the series of a name: more than one, if its values are of several kinds."""
    found = [s for s, name in enumerate(layout.types) if name == type_]
    if layout.keys is not None:
        found = [s for s in found if layout.keys[s] == key]
    elif key:
        return []
    if layout.nodes is not None:
        found = [s for s in found if layout.nodes[s] == node]
    return found


def _mask(layout: Layout, series: list[int]) -> bytes:
    """Return a byte for each point of the frame, 1 where it is of the series."""
    if layout.sid.code == "B":
        return layout.sid.data.translate(_table(tuple(series)))
    return bytes(map(set(series).__contains__, layout.sid.to_array()))


@lru_cache(maxsize=256)
def _table(series: tuple[int, ...]) -> bytes:
    return bytes(number in series for number in range(256))


def _times(layout: Layout, mask: bytes) -> array[int]:
    t0, unit = layout.t0, layout.unit
    steps = accumulate(layout.dt.to_array(), initial=0)
    times = [t0 + unit * units for units in compress(steps, mask)]
    if min(times) < INT64_MIN or max(times) > INT64_MAX:
        times = [(time - INT64_MIN) % 2**64 + INT64_MIN for time in times]
    return array("q", times)


def _values(layout: Layout, series: list[int], mask: bytes) -> list[Value]:
    places = series_places(layout)
    some = [values_at(layout, places[s], column_entries(layout, places[s].column)) for s in series]
    if len(some) == 1:
        return list(some[0])
    nexts = {s: iter(values).__next__ for s, values in zip(series, some, strict=True)}
    return [nexts[s]() for s in compress(layout.sid.to_array(), mask)]
