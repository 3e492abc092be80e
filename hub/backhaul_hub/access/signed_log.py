"""A file of signed lines beside the keys, only ever added to: facts that must be known also where hub.db is lost.

It stands beside the keys, so whatever can sign accounts has it, and every backup. A line that is damaged, or that
another key signed, says nothing.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic, TypeVar

import structlog

from backhaul_hub.access.keys import key_directory
from backhaul_hub.access.revocations import Revocation
from backhaul_hub.errors import ConfigError
from backhaul_hub.nats.nkey import Key
from backhaul_hub.private_files import sync_directory, write_private

log = structlog.get_logger(__name__)

REVOCATIONS = "revocations.jsonl"
Row = TypeVar("Row", bound=Any)


class SignedLog(Generic[Row]):
    """One file of one hub directory.

    Args:
        signer: signs accounts, and these lines.
        name: of the file.
        purpose: what a signature names: no account, no login could be passed off as such a line.
        row: makes a row, a dataclass, of its fields.
        key: returns what a row is known by.
    """

    def __init__(
        self,
        directory: Path,
        signer: Key,
        *,
        name: str,
        purpose: str,
        row: Callable[..., Row],
        key: Callable[[Row], str],
    ) -> None:
        self._path = key_directory(directory) / name
        self._signer = signer
        self._purpose = purpose
        self._make = row
        self._key = key
        self._read: dict[str, Row] = {}
        self._read_bytes = -1

    def rows(self) -> dict[str, Row]:
        """Return its contents, by key; the first line of each key counts.

        Raises:
            ConfigError: the file cannot be read.
        """
        try:
            # It only grows, so what was read of this size is what it holds.
            size = self._path.stat().st_size if self._path.exists() else 0
            if size != self._read_bytes:
                data = self._path.read_bytes() if size else b""
                self._read, self._read_bytes = self._parsed(data), size
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from error
        return self._read

    def add(self, rows: Iterable[Row]) -> None:
        """Add those that it does not hold.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        known = self.rows()
        lines = [self._line(each) for each in rows if self._key(each) not in known]
        if not lines:
            return
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
            with os.fdopen(descriptor, "r+b") as file:
                # A line that a power cut has cut must not take the next one with it.
                end = file.seek(0, os.SEEK_END)
                if end:
                    file.seek(end - 1)
                    if file.read(1) != b"\n":
                        lines.insert(0, "")
                file.write("".join(f"{line}\n" for line in lines).encode())
                file.flush()
                os.fsync(descriptor)
            sync_directory(self._path.parent)
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from error

    def rewrite(self, change: Callable[[Row], Row]) -> bool:
        """Put another row in the place of each, whole or not at all; return whether any is another.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        before = list(self.rows().values())
        after = [change(each) for each in before]
        if after == before:
            return False
        try:
            write_private(self._path, "".join(f"{self._line(each)}\n" for each in after))
        except OSError as error:
            raise ConfigError(f"{self._path}: {error.strerror}") from error
        self._read_bytes = -1
        return True

    def _parsed(self, data: bytes) -> dict[str, Row]:
        found: dict[str, Row] = {}
        damaged = 0
        for line in data.splitlines():
            if not line.strip():
                continue
            row = self._row(line)
            if row is None:
                damaged += 1
            else:
                found.setdefault(self._key(row), row)
        if damaged:
            log.warning("signed_lines_that_are_none", file=str(self._path), lines=damaged)
        return found

    def _row(self, line: bytes) -> Row | None:
        try:
            said = json.loads(line)
            signature = said.pop("signature")
            row = self._make(**said)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return row if signature == self._signature(row) else None

    def _line(self, row: Row) -> str:
        return json.dumps(asdict(row) | {"signature": self._signature(row)}, sort_keys=True)

    def _signature(self, row: Row) -> str:
        text = f"{self._purpose}\n" + json.dumps(asdict(row), sort_keys=True)
        return base64.urlsafe_b64encode(self._signer.sign(text.encode())).rstrip(b"=").decode()


class RevocationLog(SignedLog[Revocation]):
    """`keys/revocations.jsonl`: every key that was ever revoked (ADR 30).

    hub.db has the same, and accounts say which keys. This file says it where both are lost, with whose the keys were.
    """

    def __init__(self, directory: Path, signer: Key) -> None:
        super().__init__(
            directory,
            signer,
            name=REVOCATIONS,
            purpose="backhaul revocation",
            row=Revocation,
            key=lambda row: row.public_key,
        )
