"""JWTs as nats-server reads them (version 2): operator, account, user. Pure.

Each is JSON signed by the key of who stands above: the operator's by itself, accounts by a signing key
of the operator, users by their account or by one of its signing keys. A *scoped* signing key carries
a template of rights in the account's JWT; what its users bring is then only a name and tags, which
the server puts in the template's place for them.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backhaul_codec.strict.json import read_json
from backhaul_hub.nats.nkey import Key

Json = dict[str, Any]

UNLIMITED = -1
_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_VERSION = 2
_GENERATION = "generation:"


@dataclass(frozen=True, slots=True)
class Rights:
    """The rights of a user; in a scope's template `{{name()}}` and `{{tag(x)}}` stand for its own.

    A line with `{{tag(x)}}` becomes one for each value that the user has of it, and none without.
    """

    publish: Sequence[str] = ()
    """Empty: everything."""
    subscribe: Sequence[str] = ()
    """Empty: everything."""
    subs_max: int = UNLIMITED
    payload_bytes_max: int = UNLIMITED
    connection_types: Sequence[str] = ()
    """As in STANDARD, LEAFNODE; empty: any."""


@dataclass(frozen=True, slots=True)
class Scope:
    """A signing key of an account whose users all have these rights and no others."""

    key: str
    role: str
    rights: Rights


@dataclass(frozen=True, slots=True)
class Export:
    """An export for other accounts."""

    kind: Literal["service", "stream"]
    subject: str
    many_answers: bool = False
    """Of a service: whether one question has more than one."""


@dataclass(frozen=True, slots=True)
class Import:
    """An import from another account."""

    kind: Literal["service", "stream"]
    subject: str
    account: str
    """Public key of the account that exports it."""
    here: str = ""
    """Its name here, where that is another."""
    share: bool = False
    """Of a service: whether it is told who asks, as JetStream's API has to be."""


@dataclass(frozen=True, slots=True)
class Account:
    """All of an account."""

    name: str
    exports: Sequence[Export] = ()
    imports: Sequence[Import] = ()
    scopes: Sequence[Scope] = ()
    jetstream: bool = False
    leafs: bool = True
    """Whether its users may come as leafs. They say subjects that clients cannot (ADR 17)."""


def operator_jwt(
    name: str, operator: Key, signing_key: str, system_account: str, *, now_s: int
) -> str:
    """Return the operator's JWT: which other key may sign accounts."""
    return _signed(
        operator,
        operator.public,
        name,
        now_s,
        {
            "signing_keys": [signing_key],
            "system_account": system_account,
            "type": "operator",
        },
    )


def account_jwt(
    account: Account,
    public_key: str,
    signer: Key,
    revoked: Mapping[str, int],
    *,
    now_s: int,
    generation: int = 0,
) -> str:
    """Return an account's JWT.

    Args:
        account: all of it.
        public_key: the account's.
        signer: a signing key of the operator.
        revoked: users' public keys, and up to when what was signed for them is worth nothing, in
            seconds since the Unix epoch, as all times here.
        now_s: the time.
        generation: goes up by one with each change of what the JWT says (ADR 30); 0: never changed.
    """
    claims: Json = {
        "exports": [_export(each) for each in account.exports],
        "imports": [_import(each) for each in account.imports],
        "limits": _limits(account),
        "signing_keys": [_scope(each) for each in account.scopes],
        "revocations": dict(sorted(revoked.items())),
        "default_permissions": {"pub": {}, "sub": {}},
        "type": "account",
    }
    if generation:
        claims["tags"] = [f"{_GENERATION}{generation}"]
    return _signed(signer, public_key, account.name, now_s, claims)


def user_jwt(
    name: str,
    public_key: str,
    signer: Key,
    account: str,
    *,
    now_s: int,
    rights: Rights | None = None,
    tags: Sequence[tuple[str, str]] = (),
    expires_s: int = 0,
) -> str:
    """Return a user's JWT.

    Args:
        name: what `{{name()}}` stands for.
        public_key: the user's.
        signer: the account's key, or one of its signing keys.
        account: the account's public key.
        now_s: the time.
        rights: what it may do; None where the signing key is scoped, whose template says it.
        tags: what `{{tag(x)}}` stands for; x in lower case, several times where it has several values.
        expires_s: when it is worth nothing any more; 0: never.
    """
    claims: Json = {"tags": [f"{tag}:{value}" for tag, value in tags], "type": "user"}
    if rights is not None:
        claims |= _rights(rights)
    if signer.public != account:
        claims["issuer_account"] = account
    return _signed(signer, public_key, name, now_s, claims, expires_s)


def body_of(jwt: str) -> Json:
    """Return the claims of a JWT, unchecked.

    Raises:
        ValueError: it is none.
    """
    try:
        _, body, _ = jwt.split(".")
        found = read_json(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except ValueError as error:
        raise ValueError("no JWT") from error
    if not isinstance(found, dict):
        raise ValueError("no JWT")  # noqa: TRY004 - of a text, not of an argument
    return found


def same_but_for_time(one: str, other: str) -> bool:
    """Tell whether two JWTs say the same, whenever they were signed. Raises: ValueError."""
    return _timeless(one) == _timeless(other)


def generation_of(jwt: str) -> int:
    """Return the generation of an account's JWT; 0 where it has none. Raises: ValueError: it is no JWT."""
    tags = _claims(body_of(jwt)).get("tags") or []
    found = [tag.removeprefix(_GENERATION) for tag in tags if tag.startswith(_GENERATION)]
    return max((int(each) for each in found if each.isdecimal()), default=0)


def revocations_of(jwt: str) -> dict[str, int]:
    """Return whom an account's JWT shuts out, by public key, and up to when. Raises: ValueError: it is no JWT."""
    found: dict[str, int] = _claims(body_of(jwt)).get("revocations") or {}
    return found


def content_digest(jwt: str, passing_s: int) -> str:
    """Return the digest of an account JWT's claims, but for when it was signed and its generation.

    `passing_s`: revocations up to this time are for a while, and left out.
    Raises: ValueError: it is no JWT.
    """
    body = _timeless(jwt)
    claims = _claims(body)
    claims.pop("tags", None)
    revoked = claims.get("revocations") or {}
    claims["revocations"] = {key: until for key, until in revoked.items() if until != passing_s}
    return hashlib.sha256(_json(body)).hexdigest()


def with_revocations(jwt: str, revoked: Mapping[str, int], signer: Key, *, now_s: int) -> str:
    """Return an account's JWT that shuts out these users and says the same otherwise. Raises: ValueError."""
    body = body_of(jwt)
    claims = _claims(body) | {"revocations": dict(sorted(revoked.items()))}
    del claims["version"]
    return _signed(signer, body["sub"], body["name"], now_s, claims)


def _claims(body: Json) -> Json:
    found = body.get("nats")
    if not isinstance(found, dict):
        raise ValueError("no JWT of this kind")  # noqa: TRY004 - of a text, not of an argument
    return found


def _timeless(jwt: str) -> Json:
    return {key: value for key, value in body_of(jwt).items() if key not in ("iat", "jti")}


def _signed(
    signer: Key, subject: str, name: str, now_s: int, claims: Json, expires_s: int = 0
) -> str:
    body: Json = {"iat": now_s, "iss": signer.public, "name": name, "sub": subject}
    if expires_s:
        body["exp"] = expires_s
    body["nats"] = claims | {"version": _VERSION}
    # An id by content: servers that exchange what they have take one of equal ids for the same.
    digest = hashlib.sha256(_json(body)).digest()
    body["jti"] = base64.b32encode(digest).decode().rstrip("=")
    text = f"{_base64(_json(_HEADER))}.{_base64(_json(body))}"
    return f"{text}.{_base64(signer.sign(text.encode()))}"


def _json(value: Json) -> bytes:
    return json.dumps(value, separators=(",", ":"), sort_keys=True, ensure_ascii=False).encode()


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _limits(account: Account) -> Json:
    limits: Json = dict.fromkeys(
        ("subs", "data", "payload", "imports", "exports", "conn", "leaf"), UNLIMITED
    )
    limits |= {"wildcards": True, "disallow_bearer": True}
    if not account.leafs:
        limits["leaf"] = 0
    if account.jetstream:
        limits |= dict.fromkeys(("mem_storage", "disk_storage", "streams", "consumer"), UNLIMITED)
    return limits


def _export(export: Export) -> Json:
    found: Json = {"subject": export.subject, "type": export.kind}
    if export.many_answers:
        found["response_type"] = "Stream"
    return found


def _import(wanted: Import) -> Json:
    found: Json = {"subject": wanted.subject, "account": wanted.account, "type": wanted.kind}
    if wanted.here:
        found["local_subject"] = wanted.here
    if wanted.share:
        found["share"] = True
    return found


def _scope(scope: Scope) -> Json:
    return {
        "kind": "user_scope",
        "key": scope.key,
        "role": scope.role,
        "template": _rights(scope.rights),
    }


def _rights(rights: Rights) -> Json:
    found: Json = {
        "pub": {"allow": list(rights.publish)} if rights.publish else {},
        "sub": {"allow": list(rights.subscribe)} if rights.subscribe else {},
        "subs": rights.subs_max,
        "data": UNLIMITED,
        "payload": rights.payload_bytes_max,
    }
    if rights.connection_types:
        found["allowed_connection_types"] = list(rights.connection_types)
    return found
