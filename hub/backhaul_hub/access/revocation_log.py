"""`keys/revocations.jsonl`: every key that was ever revoked, a signed line each, only ever added to (ADR 30).

hub.db has the same, and accounts say which keys. This file says it where both are lost, with whose the
keys were.
"""

from __future__ import annotations

from pathlib import Path

from backhaul_hub.access.revocations import Revocation
from backhaul_hub.access.signed_log import SignedLog
from backhaul_hub.nats.nkey import Key

NAME = "revocations.jsonl"


class RevocationLog(SignedLog[Revocation]):
    """The file of one hub directory.

    Args:
        signer: signs accounts, and these lines.
    """

    def __init__(self, directory: Path, signer: Key) -> None:
        super().__init__(
            directory,
            signer,
            name=NAME,
            purpose="backhaul revocation",
            row=Revocation,
            key=lambda row: row.public_key,
        )
