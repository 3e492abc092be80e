"""Schemas written as Spark and SQL write them, `device string not null, epoch bigint`, and tables as bytes. Pure."""

from __future__ import annotations

import pyarrow as pa  # type: ignore[import-untyped]

STAMP = pa.timestamp("us", tz="UTC")
_TYPES = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": STAMP,
}


def columns(text: str) -> pa.Schema:
    """Return the Arrow schema of columns with commas between them, each a name, a type and maybe `not null`."""
    fields = []
    for column in text.split(","):
        name, kind, *rest = column.split()
        if rest not in ([], ["not", "null"]):
            raise ValueError(f"column {name}: {' '.join(rest)}")
        fields.append(pa.field(name, _TYPES[kind], nullable=not rest))
    return pa.schema(fields)


def packed(table: pa.Table, compression: str | None = None) -> bytes:
    """Return a table as bytes, to be sent to another process."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(sink, table.schema, options=options) as stream:
        stream.write_table(table)
    found: bytes = sink.getvalue().to_pybytes()
    return found


def unpacked(data: bytes) -> pa.Table:
    """Return the table again."""
    return pa.ipc.open_stream(data).read_all()
