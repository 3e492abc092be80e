"""Name the fields and columns of a frame body, for its writer and its readers."""

from enum import IntEnum

from backhaul_codec.points import FLOAT64, INT64, JSON, TEXT, UINT64

POINTS_MAX = 1 << 18
SERIES_MAX = 1 << 16
# What all names and texts of a frame may come to when each point has its own copy: a frame could
# otherwise point a quarter of a million times at one megabyte.
EXPANDED_BYTES_MAX = 64 << 20

# A key from here on is a later writer's hint: read past it. A lower one changes what the frame
# means, so a reader that does not know it must refuse the frame.
FIRST_IGNORED_KEY = 32
# The hint that every point of the frame was sent before: heads that two ends compared. 1, or not there.
SAID_AGAIN_KEY = 32


class Field(IntEnum):
    """Number the keys of a frame's map."""

    N = 0
    T0 = 1
    UNIT = 2
    DT = 3
    SID = 4
    TYPES = 5
    KEYS = 6
    KINDS = 7
    BASES = 8
    COLUMNS = 9
    BLOBS = 10
    TOMB = 11
    ORIGIN = 12
    NODE = 13
    CLOCK = 14
    NODES = 15
    """Of bundles, in the place of NODE."""


FLOAT32_COLUMN, FLOAT64_COLUMN, BLOB_COLUMN = 4, 5, 6
FLOAT_WIDTHS = {FLOAT32_COLUMN: 4, FLOAT64_COLUMN: 8}

# Width in bytes to the type code of `array`. The width of a list of numbers is never written down:
# it is the length divided by the count, which the reader knows.
SIGNED_CODES = {1: "b", 2: "h", 4: "i", 8: "q"}
INDEX_CODES = {1: "B", 2: "H", 4: "I"}
# Columns 0..3.
INTEGER_WIDTHS = (1, 2, 4, 8)

# Beyond 10**22 a power of ten is no exact double, and the division would no longer be one.
EXPONENT_MAX = 22
POWERS = tuple(float(f"1e{exponent}") for exponent in range(EXPONENT_MAX + 1))


def _valid_kinds() -> frozenset[bytes]:
    kinds = [(FLOAT64, column, e) for column in range(4) for e in range(EXPONENT_MAX + 1)]
    kinds += [(FLOAT64, FLOAT32_COLUMN, 0), (FLOAT64, FLOAT64_COLUMN, 0)]
    kinds += [(dtype, column, 0) for dtype in (INT64, UINT64) for column in range(4)]
    kinds += [(dtype, BLOB_COLUMN, 0) for dtype in range(TEXT, 256)]
    return frozenset(map(bytes, kinds))


# The three bytes of a series: the only dtypes, columns and exponents that make sense together.
KINDS = _valid_kinds()


def is_text(dtype: int) -> bool:
    """Tell whether the blobs of a dtype are text in the frame (else they are byte strings)."""
    return dtype in (TEXT, JSON)
