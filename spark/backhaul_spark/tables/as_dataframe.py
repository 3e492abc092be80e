"""Read the tables as Spark DataFrames without Delta's jar: the files of one version, as Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backhaul_spark.errors import OptionError
from backhaul_spark.tables.delta import open_table, table_uri
from backhaul_spark.tables.schemas import TABLES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SPECS = {spec.name: spec for spec in TABLES}


def read_table(spark: SparkSession, root: str, name: str) -> DataFrame:
    """Return a table as it is now; later commits do not change the frame.

    Raises:
        OptionError: there is no table of that name.
        TableMissingError: nothing was written to it yet.
    """
    if name not in _SPECS:
        raise OptionError("table", name, " or ".join(sorted(_SPECS)))
    from pyspark.sql.pandas.types import from_arrow_schema

    spec = _SPECS[name]
    schema = from_arrow_schema(spec.schema)
    paths = open_table(root, spec).file_uris()
    if not paths:
        return spark.createDataFrame([], schema)
    reader = spark.read.schema(schema).option("basePath", table_uri(root, name))
    return reader.parquet(*paths)
