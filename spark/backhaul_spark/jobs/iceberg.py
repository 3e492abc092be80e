"""The tables for readers of Iceberg: metadata beside them that names their own files. No row is copied. No Spark.

Needs the extra `iceberg`. Delta's log stays what decides: a run brings the metadata to what the tables are now.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq  # type: ignore[import-untyped]
from deltalake import DeltaTable

from backhaul_spark.errors import PackageMissingError, TablesBusyError
from backhaul_spark.tables.column_notes import described
from backhaul_spark.tables.delta import open_if_there, table_uri
from backhaul_spark.tables.files import DataFile, data_files, open_input
from backhaul_spark.tables.schemas import TABLES, TableSpec

try:
    from pyiceberg.catalog import Catalog
    from pyiceberg.catalog.sql import SqlCatalog
    from pyiceberg.exceptions import CommitFailedException, NoSuchTableError
    from pyiceberg.io import pyarrow as parquet
    from pyiceberg.manifest import DataFile as IcebergFile
    from pyiceberg.manifest import DataFileContent, FileFormat
    from pyiceberg.table import Table, TableProperties
    from pyiceberg.typedef import Record
except ImportError as error:
    raise PackageMissingError("pyiceberg", "iceberg") from error

NAMESPACE = "backhaul"
# Of a table: the version of Delta's that it is as.
VERSION_KEY = "backhaul.delta-version"
_PROPERTIES = {
    # The files are not Iceberg's: nobody who tidies up there may delete them.
    "gc.enabled": "false",
    "format-version": "2",
}
_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True, slots=True)
class InIceberg:
    """One table as readers of Iceberg have it now.

    Attributes:
        name: the table.
        version: of Delta's table.
        added, removed: files.
        metadata: the URI of the metadata file, for readers without the catalogue.
    """

    name: str
    version: int
    added: int
    removed: int
    metadata: str


def publish(root: str, directory: str) -> list[InIceberg]:
    """Bring the Iceberg tables in a directory to the newest versions of the tables under a root; a commit each.

    Args:
        root: the table root.
        directory: where the catalogue (SQLite, `catalog.db`) and the metadata lie.

    Raises:
        TablesBusyError: another run does the same at this moment. What is committed stays.
    """
    Path(directory).mkdir(parents=True, exist_ok=True)
    catalog = SqlCatalog(
        NAMESPACE,
        uri=f"sqlite:///{directory}/catalog.db",
        warehouse=Path(directory).absolute().as_uri(),
    )
    try:
        catalog.create_namespace_if_not_exists(NAMESPACE)
        found = []
        for spec in TABLES:
            table = open_if_there(root, spec)
            if table is not None:
                found.append(_publish(catalog, root, spec, table))
    except CommitFailedException as error:
        raise TablesBusyError(
            directory, f"another run publishes them: {error}", "iceberg"
        ) from error
    finally:
        catalog.close()
    return found


def _publish(catalog: Catalog, root: str, spec: TableSpec, delta: DeltaTable) -> InIceberg:
    table = _made(catalog, spec)
    version = delta.version()
    uri = table_uri(root, spec.name)
    known = {task.file.file_path: task.file for task in table.scan().plan_files()}
    wanted = {f"{uri}/{file.path}": file for file in data_files(delta, spec)}
    gone, new = sorted(known.keys() - wanted), sorted(wanted.keys() - known)
    if table.properties.get(VERSION_KEY) != str(version):
        describe = _describer(table, spec, uri)
        with table.transaction() as transaction:
            transaction.set_properties({VERSION_KEY: str(version)})
            if gone:
                with transaction.update_snapshot().overwrite() as change:
                    for path in gone:
                        change.delete_data_file(known[path])
                    for path in new:
                        change.append_data_file(describe(path, wanted[path]))
            elif new:
                with transaction.update_snapshot().fast_append() as addition:
                    for path in new:
                        addition.append_data_file(describe(path, wanted[path]))
    return InIceberg(spec.name, version, len(new), len(gone), table.metadata_location)


def _made(catalog: Catalog, spec: TableSpec) -> Table:
    """Open a table, made if it is not there, with all columns."""
    name = f"{NAMESPACE}.{spec.name}"
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        table = catalog.create_table(
            name, schema=described(spec.name, spec.schema), properties=_PROPERTIES
        )
        if spec.partition_by:
            with table.update_spec() as update:
                for column in spec.partition_by:
                    update.add_identity(column)
    if [field.name for field in table.schema().fields] != spec.schema.names:
        with table.update_schema() as change:
            change.union_by_name(spec.schema)
    # Our files name their columns, and have no numbers of Iceberg's.
    mapping = table.schema().name_mapping.model_dump_json()
    if table.properties.get(TableProperties.DEFAULT_NAME_MAPPING) != mapping:
        with table.transaction() as transaction:
            transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: mapping})
    return table


def _describer(table: Table, spec: TableSpec, uri: str) -> Callable[[str, DataFile], IcebergFile]:
    """Return a function that makes Iceberg's entry of a file: its footer's statistics, and its partition, which no column of it has."""
    schema, properties = table.schema(), table.properties
    plan = parquet.compute_statistics_plan(schema, properties)
    columns = parquet.parquet_path_to_id_mapping(schema)

    def describe(path: str, file: DataFile) -> IcebergFile:
        with open_input(uri, file.path) as opened:
            footer = pq.read_metadata(opened)
        statistics = parquet.data_file_statistics_from_parquet_metadata(
            parquet_metadata=footer, stats_columns=plan, parquet_column_mapping=columns
        )
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record(*_partition(spec, file.partition)),
            file_size_in_bytes=file.size,
            sort_order_id=None,
            spec_id=table.spec().spec_id,
            equality_ids=None,
            key_metadata=None,
            **statistics.to_serialized_dict(),
        )

    return describe


def _partition(spec: TableSpec, values: Mapping[str, str]) -> list[Any]:
    return [
        (date.fromisoformat(values[name]) - _EPOCH).days
        if spec.schema.field(name).type == "date32[day]"
        else values[name]
        for name in spec.partition_by
    ]
