"""Rules of the hub's configuration, each dropped by itself: what an attack must then get through.

A weakness edits what the configuration is made of (accounts, rights, text of hub.conf) and nothing
of how it is made, so that all else stays as it really is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import backhaul_hub.access.rules
from backhaul_hub.access.logins import vehicle_jwt
from backhaul_hub.access.rules import BLOB_QUESTIONS, CLOCK_QUESTIONS, asking_rights
from backhaul_hub.lane_names import RESETS
from backhaul_hub.links.sources import lane_source
from backhaul_hub.nats.jwt import Import, Scope, account_jwt, user_jwt
from backhaul_hub.nats.nkey import new_key
from backhaul_hub.setup.server_config import render_hub
from backhaul_hub.shards import PUSH
from backhaul_hub.streams.streams import declared_streams
from backhaul_hub.streams.twin_streams import events_of

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from backhaul_hub.nats.jwt import Account, Rights

FOREIGN_KEY = new_key("account")
"""An attacker's own."""


@dataclass(frozen=True)
class Weakness:
    """One dropped rule; `drop` patches the hub's code for as long as one hub is made and runs."""

    name: str
    drop: Callable[[pytest.MonkeyPatch], None]
    serves: bool = True
    """Whether an honest vehicle is served there at all."""

    def __str__(self) -> str:
        return self.name


def _rights(patch: pytest.MonkeyPatch, edit: Callable[[Rights], Rights]) -> None:
    # What is there now: rules may be dropped one on another.
    narrow = backhaul_hub.access.rules.vehicle_rights
    patch.setattr(backhaul_hub.access.rules, "vehicle_rights", lambda: edit(narrow()))


def _accounts(patch: pytest.MonkeyPatch, edit: Callable[[Account], Account]) -> None:
    patch.setattr(
        "backhaul_hub.access.rules.account_jwt",
        lambda account, *rest, **more: account_jwt(edit(account), *rest, **more),
    )


_MAKES_CONSUMERS = "$JS.API.CONSUMER.CREATE."


def _up_in_hub(patch: pytest.MonkeyPatch) -> None:
    """Have the streams that source from leafs stand in account HUB, as they did before ADR 25."""
    for module in ("shards", "streams.streams"):
        patch.setattr(f"backhaul_hub.{module}.API", "$JS.API")
    patch.setattr(
        "backhaul_hub.streams.twin_streams.events_of",
        lambda up_stream, env: {
            key: value for key, value in events_of(up_stream, env).items() if key != "external"
        },
    )
    known: dict[str, str] = {}
    from_leafs: list[Import] = []

    def written(account: Account, public_key: str, *rest: Any, **more: Any) -> str:
        known[account.name] = public_key
        kept = account.imports
        if account.name == "UP":
            from_leafs[:] = [each for each in kept if each.account == known["FLEET"]]
            kept = [each for each in kept if each not in from_leafs]
            # By them a stream sources another of its account.
            from_leafs.extend(each for each in kept if each.subject.startswith(_MAKES_CONSUMERS))
        elif account.name == "HUB":
            kept = [*(each for each in kept if each.account != known["UP"]), *from_leafs]
        return account_jwt(replace(account, imports=kept), public_key, *rest, **more)

    patch.setattr("backhaul_hub.access.rules.account_jwt", written)


def _nothing(patch: pytest.MonkeyPatch) -> None:
    """Drop no rule of the hub's."""


def _publish_anything(patch: pytest.MonkeyPatch) -> None:
    _rights(patch, lambda rights: replace(rights, publish=(">",)))


def _listen_to_anything(patch: pytest.MonkeyPatch) -> None:
    _rights(patch, lambda rights: replace(rights, subscribe=(">",)))


def _no_isolation(patch: pytest.MonkeyPatch) -> None:
    _publish_anything(patch)
    patch.setattr(
        "backhaul_hub.setup.hub_directory.render_hub",
        lambda settings: render_hub(settings).replace("isolate_leafnode_interest: true", ""),
    )


def _no_limits(patch: pytest.MonkeyPatch) -> None:
    _rights(patch, lambda rights: replace(rights, subs_max=-1, payload_bytes_max=-1))


def _any_port(patch: pytest.MonkeyPatch) -> None:
    _rights(patch, lambda rights: replace(rights, connection_types=()))


def _api_for_leafs(patch: pytest.MonkeyPatch) -> None:
    """Import the one question from the API itself, as it was once (ADR 17)."""
    api = RESETS.replace("hubapi", "$JS.API")

    def edit(account: Account) -> Account:
        exports = [
            replace(each, subject=api) if each.subject == RESETS else each
            for each in account.exports
        ]
        imports = [
            Import("service", api, each.account, RESETS) if each.subject == RESETS else each
            for each in account.imports
        ]
        return replace(account, exports=exports, imports=imports)

    _accounts(patch, edit)


class _InHub:
    """The hub's keys, with which vehicles are made in account HUB."""

    def __init__(self, keys: object) -> None:
        self._keys = keys

    def __getattr__(self, name: str) -> object:
        return getattr(self._keys, name)

    def account(self, name: str) -> object:
        return self._keys.account("HUB" if name == "FLEET" else name)  # type: ignore[attr-defined]


def _one_account(patch: pytest.MonkeyPatch) -> None:
    """Have vehicles in the account of the streams, with rights as narrow, and a read of their shadow."""
    vehicles: list[Scope] = []

    def edit(account: Account) -> Account:
        if account.name == "FLEET":
            vehicles[:] = account.scopes
            return replace(account, exports=[], imports=[], scopes=[])
        if account.name == "HUB":
            of_fleet = (CLOCK_QUESTIONS, BLOB_QUESTIONS)
            imports = [each for each in account.imports if each.subject not in of_fleet]
            return replace(account, imports=imports, scopes=vehicles)
        return account

    def widen(rights: Rights) -> Rights:
        own = "$JS.hub.API.DIRECT.GET.KV_TWIN_SHADOW.$KV.TWIN_SHADOW.fleet.prod.veh.{{name()}}.>"
        return replace(rights, publish=(*rights.publish, own))

    _accounts(patch, edit)
    _rights(patch, widen)
    patch.setattr(
        "backhaul_hub.access.identity_documents.vehicle_jwt",
        lambda keys, device, **more: vehicle_jwt(_InHub(keys), device, **more),  # type: ignore[arg-type]
    )


def _one_wide_account(patch: pytest.MonkeyPatch) -> None:
    _one_account(patch)
    _publish_anything(patch)


def _foreign_key(patch: pytest.MonkeyPatch) -> None:
    """Have account FLEET name a signing key that is not the hub's."""

    def edit(account: Account) -> Account:
        strangers = [Scope(FOREIGN_KEY.public, "strangers", each.rights) for each in account.scopes]
        return replace(account, scopes=[*account.scopes, *strangers])

    _accounts(patch, edit)


def _forget_revocations(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("backhaul_hub.access.push.in_force", lambda rows, now_s: {})


def _everlasting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "backhaul_hub.nats.jwt.user_jwt",
        lambda *args, **more: user_jwt(*args, **(more | {"expires_s": 0})),
    )


def _believe_subjects(patch: pytest.MonkeyPatch) -> None:
    for module in ("links.clock_service", "artifacts.service", "enrol.service"):
        patch.setattr(f"backhaul_hub.{module}.is_spoofed", lambda reply: False)


def _ask_anything(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "backhaul_hub.enrol.tokens.asking_rights",
        lambda token_id: replace(asking_rights(token_id), publish=(">",), subscribe=(">",)),
    )


def _guessable_tokens(patch: pytest.MonkeyPatch) -> None:
    numbers = count(1)
    patch.setattr(
        "backhaul_hub.enrol.add_device.new_device_token", lambda choice: f"{next(numbers):024x}"
    )


def _subjects_by_the_device(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "backhaul_hub.links.sources.lane_source",
        lambda device, lane: (
            lane_source(device, lane) | {"subject_transforms": [{"src": ">", "dest": ">"}]}
        ),
    )


def _rollups(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "backhaul_hub.control.stream_watch.declared_streams",
        lambda config: [
            stream
            | ({"allow_rollup_hdrs": True} if stream["name"].startswith(("UP", PUSH)) else {})
            for stream in declared_streams(config)
        ],
    )


REAL = Weakness("as it is", _nothing)
PUBLISH_ANYTHING = Weakness("publish: >", _publish_anything)
LISTEN_TO_ANYTHING = Weakness("subscribe: >", _listen_to_anything)
NO_ISOLATION = Weakness("publish: > and leafs not isolated", _no_isolation)
NO_LIMITS = Weakness("no limits in the scope", _no_limits)
ANY_PORT = Weakness("any connection type", _any_port)
API_FOR_LEAFS = Weakness("an import from $JS.API", _api_for_leafs)
ONE_ACCOUNT = Weakness("vehicles in the account of the streams", _one_account, serves=False)
ONE_WIDE_ACCOUNT = Weakness(
    "vehicles in the account of the streams, publish: >", _one_wide_account, serves=False
)
FOREIGN_SIGNER = Weakness("a foreign signing key in FLEET", _foreign_key)
FORGETFUL = Weakness("revocations not in the account's JWT", _forget_revocations)
EVERLASTING = Weakness("JWTs without an end", _everlasting)
ASK_ANYTHING = Weakness("a token's rights: >", _ask_anything)
BELIEVE_SUBJECTS = Weakness("subjects believed with any reply", _believe_subjects)
GUESSABLE_TOKENS = Weakness("tokens 1, 2, 3", _guessable_tokens)
SUBJECTS_BY_THE_DEVICE = Weakness(
    "UP's subjects by the device", _subjects_by_the_device, serves=False
)
ROLLUPS = Weakness("roll-ups allowed in UP", _rollups)
UP_IN_HUB = Weakness("UP in account HUB", _up_in_hub)
MESSAGE_IDS = Weakness("message ids in shared streams", _nothing)
WEAKNESSES = [each for each in list(globals().values()) if isinstance(each, Weakness)][1:]
