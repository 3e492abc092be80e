"""What the flat modules before issue 16 wrote is opened, read and carried on, bit for bit (see make_world.py)."""

from __future__ import annotations

import base64
import json
import shutil
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from backhaul_agent.ledger.schema import SCHEMA_VERSION
from backhaul_codec import hash_of, peek
from backhaul_codec.bulk.columns import decode_columns
from backhaul_codec.points import JSON, UINT64
from backhaul_hub.db import migrations
from backhaul_hub.db.store import Registry

from . import hub_says, ledger_says, tables_say
from .files import expected, lines, restore, rows, unpack
from .plain import message, plain

if TYPE_CHECKING:
    from pathlib import Path

MANY = 1000


def as_json(value: Any) -> Any:
    """Return a value as it is when it has been written and read."""
    return json.loads(json.dumps(value))


def require_kept(before: Path, after: Path) -> None:
    """See that a database has every row and column that it had, whatever was added."""
    now = rows(after)
    for name, had in rows(before).items():
        kept = [{column: row[column] for column in had[0]} for row in now[name]] if had else []
        assert [row for row in had if row not in kept] == [], name


def test_a_thousand_messages_say_what_they_said_and_become_the_same_bytes_again() -> None:
    found = lines()
    assert len(found) >= MANY
    kinds = set()
    for line in found:
        subject, body, said = json.loads(line)
        assert as_json(message(subject, base64.b64decode(body))) == said, subject
        kinds.add((said["uplink"][3], len(said.get("header", [])) and bool(said["header"][4])))
        assert said.get("again") or "error" in said or not subject.startswith("up.VID-001."), (
            subject
        )
    assert {(letter, linked) for letter in "efp" for linked in (False, True)} <= kinds


def test_a_thousand_messages_are_read_together() -> None:
    found = [json.loads(line) for line in lines()]
    sound = [each for each in found if "error" not in each[2] and each[2]["uplink"][3] in "fp"]
    batch = decode_columns(
        [base64.b64decode(body) for _, body, _ in sound],
        subjects=[subject for subject, _, _ in sound],
    )
    points = [
        (number, point) for number, (_, _, said) in enumerate(sound) for point in said["points"]
    ]
    for row, (number, (node, type_, time, value, key, tombstone, origin)) in zip(
        batch.to_pylist(), points, strict=True
    ):
        names = (row["message"], row["node"], row["type"], row["key"], row["time"])
        assert names == (number, node, type_, key, time)
        assert (row["tombstone"], row["origin"]) == (tombstone, origin)
        assert said_of(row) == value, names


def said_of(row: dict[str, Any]) -> Any:
    """Return the value of a row as `plain` has it."""
    if row["dtype"] == UINT64:
        return row["i64"] % 2**64
    [value] = [row[name] for name in ("f64", "i64", "text", "data") if row[name] is not None]
    if row["dtype"] >= JSON:
        return [row["dtype"], (value.encode() if isinstance(value, str) else value).hex()]
    return plain(value)


@pytest.mark.parametrize("schema", [4, 5])
async def test_the_ledger_says_what_it_said_and_goes_on_as_it_went(
    tmp_path: Path, schema: int
) -> None:
    """The ledger of schema 5 was made by commit a43a172, which opened that of schema 4 and went on."""
    name = f"ledger-{schema}"
    path, said = restore(name, tmp_path / "ledger.db"), expected(name)
    if schema == 4:  # the vehicle's word on a command stood in one column, as JSON
        said["says"]["commands"] = [
            [*row, word.get("error", ""), word.get("result")]
            for *row, words in said["says"]["commands"]
            for word in [json.loads(bytes.fromhex(words))]
        ]
    shutil.copy(path, tmp_path / "before.db")
    ledger = await ledger_says.open_ledger(path)
    try:
        require_kept(tmp_path / "before.db", path)
        assert as_json(await ledger_says.says(ledger)) == said["says"]
        ends = {name: lane.chain for name, lane in ledger.lanes.items()}
        assert as_json(await ledger_says.go_on(ledger)) == said["goes on"]
        for name, end in ends.items():
            first = (await ledger.read(name, end.seq + 1, 1))[0]
            assert peek(first.body).link == end.hash
            assert ledger.lanes[name].chain.hash != hash_of(first.subject, first.body)
    finally:
        await ledger.close()
    with closing(sqlite3.connect(path)) as made:
        assert made.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


async def test_the_hub_db_says_what_it_said_and_goes_on_as_it_went(tmp_path: Path) -> None:
    path, said = restore("hub-14", tmp_path / "hub.db"), expected("hub-14")
    shutil.copy(path, tmp_path / "before.db")
    async with await Registry.open(path) as registry:
        require_kept(tmp_path / "before.db", path)
        assert as_json(await hub_says.says(registry)) == said["says"]
        assert as_json(await hub_says.go_on(registry)) == said["goes on"]
    with closing(sqlite3.connect(path)) as made:
        assert made.execute("PRAGMA user_version").fetchone() == (migrations.SCHEMA_VERSION,)


async def test_alerts_and_logins_of_schema_18_are_read_as_they_were(tmp_path: Path) -> None:
    path, said = restore("hub-18", tmp_path / "hub.db"), expected("hub-18")
    shutil.copy(path, tmp_path / "before.db")
    async with await Registry.open(path) as registry:
        require_kept(tmp_path / "before.db", path)
        found = await hub_says.says(registry) | await hub_says.says_since_14(registry)
        assert as_json(found) == said["says"]
        assert as_json(await hub_says.go_on(registry)) == said["goes on"]
    with closing(sqlite3.connect(path)) as made:
        assert made.execute("PRAGMA user_version").fetchone() == (migrations.SCHEMA_VERSION,)


@pytest.mark.slow
def test_the_tables_say_what_they_said_and_go_on_as_they_went(tmp_path: Path) -> None:
    said = expected("tables-4")
    unpack("tables-4", tmp_path)
    assert as_json(tables_say.says(tmp_path)) == said["says"]
    tables_say.go_on(tmp_path, tables_say.captured(lines()))
    assert as_json(tables_say.says(tmp_path)) == said["goes on"]


@pytest.mark.parametrize("name", ["ledger-4", "hub-14", "hub-18", "tables-4"])
def test_each_expectation_has_something_in_every_part(name: str) -> None:
    """Nothing is compared with nothing, but where the world has none of it."""
    said = expected(name)["says"]
    none = {"damaged", "pending", "owed"} if name == "ledger-4" else set()
    assert {part for part, value in said.items() if not value} <= none
    assert expected(name)["goes on"] != said
