"""Read a frame body as far as columns of bytes, and prove it whole, without building a point.

`decode`, `check` and `decode_columns` all go through `read_layout`; what it lets pass, none of
them refuses later. The work is per field and per series, never in Python per point.
"""

from __future__ import annotations

import sys
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import mul
from typing import Any

from backhaul_codec.errors import CodecError
from backhaul_codec.points import INT64_MAX, INT64_MIN, UINT64, UINT64_MAX, VALUE_BYTES_MAX
from backhaul_codec.rules import blob_size, require_name, require_size, require_time
from backhaul_codec.wire import cbor
from backhaul_codec.wire.frame_fields import (
    BLOB_COLUMN,
    EXPANDED_BYTES_MAX,
    FIRST_IGNORED_KEY,
    FLOAT_WIDTHS,
    INDEX_CODES,
    INTEGER_WIDTHS,
    KINDS,
    POINTS_MAX,
    SERIES_MAX,
    SIGNED_CODES,
    Field,
    is_text,
)

_FIELDS = {int(field): field for field in Field}
_SERIES_INDICES = {1: "B", 2: "H"}
_WIDTHS = {code: width for codes in (SIGNED_CODES, INDEX_CODES) for width, code in codes.items()}
_COLUMN_CODES = [{width: SIGNED_CODES[width]} for width in INTEGER_WIDTHS]


@dataclass(slots=True)
class Numbers:
    """Hold numbers as little-endian bytes, out of their planes, and the code to read them with."""

    code: str
    data: bytes

    def __len__(self) -> int:
        return len(self.data) // _WIDTHS[self.code]

    def to_array(self) -> array[int]:
        """Return the numbers."""
        numbers: array[int] = array(self.code)
        numbers.frombytes(self.data)
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers


@dataclass(slots=True)
class Layout:
    """Hold the columns of a frame, every length and reference proven.

    Lists of series run in series order: `types`, `keys` (None: all empty), `kinds` (three bytes
    each: dtype, column, exponent), `counts` (points), `nodes` (None: all `node`). Of a bundle `node` is empty and
    `nodes` says all; of a frame the body never says them, the subject of an edge's frame does. `bases` has one number for each series in columns
    0..3. A column without data is absent: 0..3 and the blob indices are in `numbers`, byte planes
    in `planes`.
    """

    n: int
    node: str
    clock: int
    t0: int
    unit: int
    dt: Numbers
    sid: Numbers
    types: list[str]
    keys: list[str] | None
    kinds: bytes
    counts: list[int]
    bases: list[int]
    numbers: dict[int, Numbers]
    planes: dict[int, bytes]
    blobs: list[str | bytes]
    tomb: bytes | None
    origins: list[str]
    origin_of: Numbers | None
    nodes: list[str] | None = None

    def shapes(self) -> tuple[bytes, bytes, bytes]:
        """Return the dtypes, columns and exponents of the series."""
        return self.kinds[::3], self.kinds[1::3], self.kinds[2::3]

    def series_nodes(self) -> Sequence[str]:
        """Return the node of each series, in series order."""
        return self.nodes or [self.node] * len(self.types)


def read_layout(body: bytes, *, bundle: bool = False) -> Layout:
    """Return the proven layout of a frame body, or of a bundle's. Raises: CodecError."""
    return prove(read_fields(body), len(body), bundle=bundle)


def read_fields(body: bytes) -> dict[int, Any]:
    """Return the fields of a frame, none of them proven but that it is known. Raises: CodecError."""
    fields = cbor.load(body)
    _require_known(fields)
    return fields  # type: ignore[no-any-return]


def prove(fields: dict[int, Any], size: int, *, bundle: bool = False) -> Layout:
    """Return the layout of a frame or bundle whose body has `size` bytes. Raises: CodecError."""
    get = fields.get
    n = _integer(get(Field.N), 1, POINTS_MAX, "n")
    types = prove_texts(get(Field.TYPES), None, "type")
    keys = get(Field.KEYS)
    sid = _numbers(get(Field.SID), _SERIES_INDICES, n, "sid")
    kinds = _kinds(get(Field.KINDS), len(types))
    counts = _counts(sid, len(types), n)
    numbers, planes = _columns(get(Field.COLUMNS), _entries(kinds, counts))
    blobs = get(Field.BLOBS)
    origin = get(Field.ORIGIN)
    layout = Layout(
        n=n,
        node=_node(get, bundle=bundle),
        clock=_integer(get(Field.CLOCK, 0), 0, 2, "clock"),
        t0=require_time(get(Field.T0)),
        unit=_integer(get(Field.UNIT), 1, UINT64_MAX, "unit"),
        dt=_numbers(get(Field.DT), SIGNED_CODES, n - 1, "dt"),
        sid=sid,
        types=types,
        keys=None if keys is None else prove_texts(keys, len(types), "key"),
        kinds=kinds,
        counts=counts,
        bases=_bases(get(Field.BASES), kinds, bundle=bundle),
        numbers=numbers,
        planes=planes,
        blobs=[] if blobs is None else _blobs(blobs),
        tomb=_tombstones(get(Field.TOMB), n),
        origins=[],
        origin_of=None,
        nodes=prove_texts(get(Field.NODES), len(types), "node") if bundle else None,
    )
    if origin is not None:
        layout.origins, layout.origin_of = _origins(origin, n)
    if BLOB_COLUMN in numbers:
        _require_blobs(layout)
    if n * size > EXPANDED_BYTES_MAX:  # a point refers to no byte of the body twice
        _require_expansion(layout)
    return layout


def _node(get: Callable[[Field], Any], *, bundle: bool) -> str:
    """Return the node of a frame; of a bundle the empty one, its series have nodes."""
    other = Field.NODE if bundle else Field.NODES
    if get(other) is not None:
        raise CodecError(f"field {other.name} is in a frame that has no place for it", "field")
    return "" if bundle else require_name(get(Field.NODE), "node")


def _require_known(fields: Any) -> None:
    if type(fields) is not dict:
        raise CodecError("a frame is a CBOR map", "field")
    for key, value in fields.items():
        if type(key) is not int:
            raise CodecError(f"a frame has a key that is {type(key).__name__}, no integer", "field")
        if key not in _FIELDS and key < FIRST_IGNORED_KEY:
            raise CodecError(f"a frame has the unknown field {key}", "field")
        # None stands for an absent field from here on, and must not come in from outside.
        if value is None and key < FIRST_IGNORED_KEY:
            raise CodecError(f"field {_FIELDS[key].name} is null", "field")


def _integer(value: Any, low: int, high: int, what: str) -> int:
    if type(value) is not int or not low <= value <= high:
        raise CodecError(f"{what} is not an integer in {low}..{high}", "field")
    return value


def prove_texts(value: Any, count: int | None, what: str) -> list[str]:
    """Return the names of a frame's series, one for each (None: as many as there are)."""
    if type(value) is not list or set(map(type, value)) != {str}:
        raise CodecError(f"the {what}s of a frame are not a list of texts", "field")
    if len(value) > SERIES_MAX or count not in (None, len(value)):
        raise CodecError(f"{len(value)} {what}s are not one for each series", "series")
    if max(map(len, value)) > 63:  # at four bytes a character, shorter ones fit anyway
        for text in value:
            require_name(text, what)
    return value


def _numbers(value: Any, codes: dict[int, str], count: int, what: str) -> Numbers:
    """Return `count` numbers of the width in `codes` that the length implies."""
    if type(value) is not bytes:
        raise CodecError(f"{what} is not a byte string", "field")
    width = len(value) // count if count else min(codes)
    if width not in codes or len(value) != width * count:
        raise CodecError(f"{what} does not have exactly {count} numbers", "column")
    return Numbers(codes[width], value if width == 1 else bytes(unplane(value, width)))


def unplane(planes: bytes, width: int) -> bytearray:
    """Put the bytes of each number together again, little-endian."""
    count = len(planes) // width
    raw = bytearray(len(planes))
    for plane in range(width):
        raw[plane::width] = planes[plane * count : (plane + 1) * count]
    return raw


def _kinds(value: Any, series: int) -> bytes:
    if type(value) is not bytes or len(value) != 3 * series:
        raise CodecError("kinds does not have three bytes for each series", "series")
    if not KINDS.issuperset([value[at : at + 3] for at in range(0, len(value), 3)]):
        raise CodecError("a series has a dtype, column and exponent that do not agree", "series")
    return value


def _counts(sid: Numbers, series: int, n: int) -> list[int]:
    """Return the points of each series: all at least 1, n together."""
    if sid.code == "B" and series <= 64:  # a memchr for each series beats a dict for each point
        counts = [sid.data.count(number) for number in range(series)]
    else:
        found = Counter(sid.to_array())
        counts = [found[number] for number in range(series)]
    if sum(counts) != n:
        raise CodecError("a point belongs to a series that is not there", "series")
    if not all(counts):
        raise CodecError("a series has no points", "series")
    return counts


def _entries(kinds: bytes, counts: list[int]) -> list[int]:
    """Return how many entries each of the columns 0..6 must have."""
    entries = [0] * (BLOB_COLUMN + 1)
    for column, count in zip(kinds[1::3], counts, strict=True):
        entries[column] += count - 1 if column < 4 else count
    return entries


def _columns(value: Any, entries: list[int]) -> tuple[dict[int, Numbers], dict[int, bytes]]:
    if type(value) is not dict:
        raise CodecError("columns is not a map", "field")
    for column in value:
        if type(column) is not int or not 0 <= column <= BLOB_COLUMN:
            name = column if type(column) is int else type(column).__name__
            raise CodecError(f"a frame has the unknown column {name}", "column")
    numbers, planes = {}, {}
    for column, count in enumerate(entries):
        if column not in value:
            if count:
                raise CodecError(f"column {column} is missing", "column")
        elif column in FLOAT_WIDTHS:
            planes[column] = _plane_bytes(value[column], count * FLOAT_WIDTHS[column], column)
        else:
            codes = INDEX_CODES if column == BLOB_COLUMN else _COLUMN_CODES[column]
            numbers[column] = _numbers(value[column], codes, count, f"column {column}")
    return numbers, planes


def _plane_bytes(value: Any, size: int, column: int) -> bytes:
    if type(value) is not bytes or len(value) != size:
        raise CodecError(f"column {column} does not have exactly {size} bytes", "column")
    return value


def _bases(value: Any, kinds: bytes, *, bundle: bool) -> list[int]:
    dtypes = [dtype for dtype, column in zip(kinds[::3], kinds[1::3], strict=True) if column < 4]
    if bundle and value is not None:
        value = _bases_of_planes(value, dtypes)
    bases = [] if value is None else value
    if type(bases) is not list or len(bases) != len(dtypes):
        raise CodecError(f"there are not exactly {len(dtypes)} bases", "series")
    for base in bases:
        if type(base) is not int:
            raise CodecError("a base is not an integer", "field")
    if UINT64 in dtypes:
        for dtype, base in zip(dtypes, bases, strict=True):
            low, high = (0, UINT64_MAX) if dtype == UINT64 else (INT64_MIN, INT64_MAX)
            _integer(base, low, high, "a base")
    elif bases:
        _integer(min(bases), INT64_MIN, INT64_MAX, "a base")
        _integer(max(bases), INT64_MIN, INT64_MAX, "a base")
    return bases


def _bases_of_planes(value: Any, dtypes: list[int]) -> list[int]:
    """Return the bases of a bundle, which has them as a list of numbers modulo 2**64."""
    if not dtypes:
        raise CodecError("there are bases, and no series that has one", "series")
    bases = _numbers(value, SIGNED_CODES, len(dtypes), "bases").to_array()
    return [
        base % 2**64 if dtype == UINT64 else base for base, dtype in zip(bases, dtypes, strict=True)
    ]


def _blobs(value: Any) -> list[str | bytes]:
    if type(value) is not list or not {str, bytes}.issuperset(map(type, value)):
        raise CodecError("blobs is not a list of texts and byte strings", "field")
    if value:
        # Few blobs are long, and only a text that may be too long is measured in bytes.
        for blob in value if max(map(len, value)) > VALUE_BYTES_MAX // 4 else ():
            require_size(blob_size(blob))
    return value


def _require_blobs(layout: Layout) -> None:
    """Refuse an index without a blob, and a blob that is not of its series' type."""
    indices = layout.numbers[BLOB_COLUMN].to_array()
    if indices and max(indices) >= len(layout.blobs):
        raise CodecError("a point has a blob that is not there", "column")
    start = 0
    for dtype, column, _, count in zip(*layout.shapes(), layout.counts, strict=True):
        if column == BLOB_COLUMN:
            used = set(indices[start : start + count])
            wanted = str if is_text(dtype) else bytes
            if any(type(layout.blobs[index]) is not wanted for index in used):
                raise CodecError(f"a blob is not {wanted.__name__} as its series", "column")
            start += count


def _tombstones(value: Any, n: int) -> bytes | None:
    if value is not None and (type(value) is not bytes or len(value) != n):
        raise CodecError(f"tomb does not have exactly {n} bytes", "column")
    return value


def _origins(value: Any, n: int) -> tuple[list[str], Numbers]:
    if type(value) is not list or len(value) != 2:
        raise CodecError("origin is not a list of texts and their indices", "field")
    origins = prove_texts(value[0], None, "origin")
    origin_of = _numbers(value[1], _SERIES_INDICES, n, "origin")
    if max(origin_of.to_array()) >= len(origins):
        raise CodecError("a point has an origin that is not there", "column")
    return origins, origin_of


def _require_expansion(layout: Layout) -> None:
    """Refuse a frame whose texts, copied out for every point, would fill the memory."""
    size = text_bytes(layout)
    if size > EXPANDED_BYTES_MAX:
        raise CodecError(f"the texts of the points come to {size} bytes", "size")


def text_bytes(layout: Layout) -> int:
    """Return the size of the names and texts of all points, each with copies of its own."""
    names = [len(text.encode()) for text in layout.types]
    if layout.keys is not None:
        names = [a + len(key.encode()) for a, key in zip(names, layout.keys, strict=True)]
    if layout.nodes is not None:
        names = [a + len(node.encode()) for a, node in zip(names, layout.nodes, strict=True)]
    size: int = layout.n * len(layout.node.encode()) + sum(map(mul, names, layout.counts))
    if BLOB_COLUMN in layout.numbers:
        sizes = [blob_size(blob) for blob in layout.blobs]
        size += sum(map(sizes.__getitem__, layout.numbers[BLOB_COLUMN].to_array()))
    if layout.origin_of is not None:
        sizes = [len(origin.encode()) for origin in layout.origins]
        size += sum(map(sizes.__getitem__, layout.origin_of.to_array()))
    return size
