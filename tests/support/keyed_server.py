"""A nats-server that knows its users by JWTs, and users of its one account."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from backhaul_codec.protocol.credentials import Credentials
from backhaul_hub.nats.jwt import Account, Rights, account_jwt, operator_jwt, user_jwt
from backhaul_hub.nats.nkey import new_key
from tests.support.nats_server import NatsServer

if TYPE_CHECKING:
    from pathlib import Path


class KeyedServer:
    """Trusts one operator; its account DATA has JetStream."""

    def __init__(self, directory: Path) -> None:
        now_s = int(time.time())  # noqa: TID251 - the server compares with its own clock
        operator, self._account, system = (
            new_key("operator"),
            new_key("account"),
            new_key("account"),
        )
        accounts = {
            key.public: account_jwt(account, key.public, operator, {}, now_s=now_s)
            for key, account in (
                (self._account, Account("DATA", jetstream=True)),
                (system, Account("SYS")),
            )
        }
        preload = "\n".join(f"{public}: {jwt}" for public, jwt in accounts.items())
        trusted = operator_jwt("hub", operator, operator.public, system.public, now_s=now_s)
        self.server = NatsServer(
            directory,
            mappings="",  # an operator's server has no account of its own
            extra=f"operator: {trusted}\nsystem_account: {system.public}\n"
            f"resolver: MEMORY\nresolver_preload {{\n{preload}\n}}\n"
            # By itself 2 s, in which who stands still before it logs in is refused.
            "authorization { timeout: 120 }",
        )
        self.directory = directory

    def creds(self, name: str, *, expires_s: int = 0, known: bool = True) -> Path:
        """Write the `.creds` file of a user of DATA; where not `known`, no such account signed it."""
        key, signer = new_key("user"), self._account if known else new_key("account")
        jwt = user_jwt(
            name,
            key.public,
            signer,
            signer.public,
            now_s=expires_s or 1,
            rights=Rights(),
            expires_s=expires_s,
        )
        path = self.directory / f"{name}.creds"
        path.write_text(Credentials(key.seed, key.public, jwt).text())
        return path
