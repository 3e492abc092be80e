"""Ask a question of the tables under a root, with DuckDB in this process or with Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

import duckdb
import pyarrow as pa  # type: ignore[import-untyped]

from backhaul_spark.questions.catalogue import Question
from backhaul_spark.questions.settings import QuestionsSettings
from backhaul_spark.questions.views import MINUTE_NS, TABLES, About, Views
from backhaul_spark.tables.as_dataframe import read_table
from backhaul_spark.tables.delta import dataset_of, open_table
from backhaul_spark.tables.schemas import POINTS_TABLE, ROLLUPS_TABLE, TRIPS_TABLE, TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPECS = {spec.name: spec for spec in (POINTS_TABLE, ROLLUPS_TABLE, TRIPS_TABLE)}
_GLOB = frozenset("*?[")


class InDuckDB:
    """Questions to the tables as they are now, answered by DuckDB; a context.

    Args:
        root: the table root, a directory or an object store URI.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._duck = duckdb.connect()
        self._known: set[str] = set()
        self._duck.execute("SET TimeZone = 'UTC'")
        self._duck.execute("SET default_null_order = 'nulls_first_on_asc_last_on_desc'")
        self._duck.execute("CREATE TEMP MACRO at_ns(ns) AS make_timestamptz(ns // 1000)")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._duck.close()

    def ask(self, sql: str, views: dict[str, str], tables: tuple[str, ...]) -> pa.Table:
        """Return the answer.

        Args:
            sql: the question.
            views: text of each view that it reads, in the order in which they are made.
            tables: those that it and the views read.

        Raises:
            TableMissingError: nothing was written to one of them yet.
        """
        for name in tables:
            if name not in self._known:
                self._table(_SPECS[name])
                self._known.add(name)
        for name, text in views.items():
            self._duck.execute(f"CREATE OR REPLACE TEMP VIEW {name} AS {text}")
        return self._duck.execute(sql).fetch_arrow_table()

    def _table(self, spec: TableSpec) -> None:
        table = open_table(self._root, spec)
        files = table.file_uris()
        if not files or "://" in self._root or _GLOB & set(self._root):
            # A table on an object store is read by Arrow: DuckDB would download an extension for it.
            self._duck.register(spec.name, dataset_of(table, spec))
            return
        types = ", ".join(
            f"'{name}': {'DATE' if name == 'date' else 'VARCHAR'}" for name in spec.partition_by
        )
        listed = ", ".join("'" + file.replace("'", "''") + "'" for file in files)
        self._duck.execute(
            f"CREATE TEMP VIEW {spec.name} AS SELECT * FROM read_parquet([{listed}], "
            f"hive_partitioning = true, hive_types = {{{types}}})"
        )


class InSpark:
    """The same with Spark; its session loses views of these names in the end; a context.

    Args:
        spark: the session, in UTC.
        root: the table root.
    """

    def __init__(self, spark: SparkSession, root: str) -> None:
        self._spark, self._root = spark, root
        self._known: dict[str, None] = {}

    def __enter__(self) -> Self:
        self._spark.sql(
            "CREATE OR REPLACE TEMPORARY FUNCTION at_ns(ns BIGINT) RETURNS TIMESTAMP "
            "RETURN timestamp_micros(ns div 1000)"
        )
        return self

    def __exit__(self, *_: object) -> None:
        for name in self._known:
            self._spark.catalog.dropTempView(name)
        self._spark.sql("DROP TEMPORARY FUNCTION at_ns")

    def ask(self, sql: str, views: dict[str, str], tables: tuple[str, ...]) -> pa.Table:
        """Return the answer. Raises: as of `InDuckDB`."""
        for name in tables:
            if name not in self._known:
                read_table(self._spark, self._root, name).createOrReplaceTempView(name)
                self._known[name] = None
        for name, text in views.items():
            self._spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW {name} AS {text}")
            self._known[name] = None
        return self._spark.sql(sql).toArrow()


def ask(
    where: InDuckDB | InSpark,
    question: Question,
    settings: QuestionsSettings,
    asked: About,
    now_ns: int,
) -> pa.Table:
    """Return the answer of a question.

    Args:
        where: what answers it.
        question: which one.
        settings: the series.
        asked: what it is about; where `from_ns` is None it is the question's own span, if it has one.
        now_ns: ns since 1970; what is later is a clock's mistake, and does not count as newest.

    Raises:
        TableMissingError: a table that it reads is not there.
        OptionError: a name that cannot be asked for.
    """
    span = question.span_ns
    if span is not None and asked.from_ns is None:
        last = asked.to_ns
        if last is None:
            last = _newest_ns(where, settings, asked, now_ns)
        asked = About(last - span, last, asked.device, asked.fleet, asked.source)
    views = Views(settings, asked, now_ns).of(question.reads)
    return where.ask(question.sql, views, _tables(question, asked))


def _tables(question: Question, asked: About) -> tuple[str, ...]:
    of_views = [asked.source] if any(name not in TABLES for name in question.reads) else []
    return (*of_views, *(name for name in question.reads if name in TABLES))


def _newest_ns(
    where: InDuckDB | InSpark, settings: QuestionsSettings, asked: About, now_ns: int
) -> int:
    """Return the end of the minute of the newest speed."""
    views = Views(settings, asked, now_ns).of(("speed_last",))
    sql = f"SELECT max(at_ns) AS at_ns FROM speed_last WHERE at_ns < {now_ns}"
    [newest] = where.ask(sql, views, (asked.source,)).column("at_ns").to_pylist()
    last: int = now_ns if newest is None else newest
    return last // MINUTE_NS * MINUTE_NS + MINUTE_NS
