"""`keys/revocations.jsonl`: every key that was ever revoked, a signed line each, only ever added to (ADR 30).

hub.db has the same, and accounts say which keys. This file says it where both are lost, with whose the
keys were; it stands beside the keys, so whatever can sign accounts has it, and every backup. A line that is
damaged, or that another key signed, says nothing.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

import structlog

from backhaul_hub.access.keys import key_directory
from backhaul_hub.access.revocations import Revocation
from backhaul_hub.errors import ConfigError
from backhaul_hub.nats.nkey import Key
from backhaul_hub.private_files import sync_directory

log = structlog.get_logger(__name__)

NAME = "revocations.jsonl"


class RevocationLog:
    """The file of one hub directory.

    Args:
        directory: the hub's.
        signer: signs accounts, and these lines.
    """

    def __init__(self, directory: Path, signer: Key) -> None:
        self._path = key_directory(directory) / NAME
        self._signer = signer
        self._read: dict[str, Revocation] = {}
        self._read_bytes = -1

    def rows(self) -> dict[str, Revocation]:
        """Return its contents, by public key; the first line of each key counts.

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

    def add(self, rows: Iterable[Revocation]) -> None:
        """Add those that it does not hold.

        Raises:
            ConfigError: the file cannot be read or written.
        """
        known = self.rows()
        lines = [self._line(each) for each in rows if each.public_key not in known]
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

    def _parsed(self, data: bytes) -> dict[str, Revocation]:
        found: dict[str, Revocation] = {}
        damaged = 0
        for line in data.splitlines():
            if not line.strip():
                continue
            row = self._row(line)
            if row is None:
                damaged += 1
            else:
                found.setdefault(row.public_key, row)
        if damaged:
            log.warning("revocations_with_lines_that_are_none", file=str(self._path), lines=damaged)
        return found

    def _row(self, line: bytes) -> Revocation | None:
        try:
            said = json.loads(line)
            signature = said.pop("signature")
            row = Revocation(**said)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return None
        return row if signature == self._signature(row) else None

    def _line(self, row: Revocation) -> str:
        return json.dumps(asdict(row) | {"signature": self._signature(row)}, sort_keys=True)

    def _signature(self, row: Revocation) -> str:
        # What is signed names its purpose: no account, no login could be passed off as it.
        text = "backhaul revocation\n" + json.dumps(asdict(row), sort_keys=True)
        return base64.urlsafe_b64encode(self._signer.sign(text.encode())).rstrip(b"=").decode()
