"""Name a series of a vehicle as people write it: `battery.soc`, or `battery.soc.cell-7`."""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import NamedTuple

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]

from backhaul_codec.subjects import SubjectError, decode_token, encode_token
from backhaul_spark.errors import OptionError


class SeriesKey(NamedTuple):
    """A series: node, type, key ("" for none)."""

    node: str
    type: str
    key: str = ""

    def __str__(self) -> str:
        parts = self if self.key else self[:2]
        return ".".join(encode_token(part) for part in parts)


class OneSeries(NamedTuple):
    """A series of a device."""

    device: str
    node: str
    type: str
    key: str = ""

    def __str__(self) -> str:
        return ".".join(filter(None, self[1:]))

    def table(self) -> pa.Table:
        """Return its names as one row."""
        return pa.table({name: [text] for name, text in self._asdict().items()})

    def filter(self) -> pc.Expression:
        """Return a filter that finds its rows."""
        return reduce(and_, (pc.field(name) == text for name, text in self._asdict().items()))


def parse_series(text: str, option: str = "signals") -> SeriesKey:
    """Read `node.type` or `node.type.key`; names are percent-encoded as in subjects.

    Raises:
        OptionError: it is none.
    """
    try:
        names = [decode_token(token) for token in text.split(".")]
    except SubjectError as error:
        raise OptionError(option, text, f"a series such as battery.soc: {error}") from error
    if not 2 <= len(names) <= 3:
        raise OptionError(option, text, "a series such as battery.soc or node.type.key")
    return SeriesKey(*names)
