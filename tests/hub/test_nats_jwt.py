"""Keys and the JWTs signed with them; what the server makes of them stands in test_accounts_at_server.py."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

import nacl.exceptions
import nacl.signing
import pytest

from backhaul_hub.access.keys import HubKeys, key_directory, read_keys, write_keys
from backhaul_hub.errors import ConfigError, KeyRefusedError
from backhaul_hub.nats.jwt import Rights, body_of, same_but_for_time, user_jwt
from backhaul_hub.nats.nkey import Key, new_key, read_key

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW_S = 1_800_000_000


def signed(signer: Key, key: Key, **more: Any) -> str:
    return user_jwt("VID-001", key.public, signer, signer.public, **{"now_s": NOW_S} | more)


def check_signature(jwt: str, signer: Key) -> None:
    text, _, signature = jwt.rpartition(".")
    # Kind, 32 bytes, checksum.
    raw = base64.b32decode(signer.public + "=" * (-len(signer.public) % 8))[1:33]
    nacl.signing.VerifyKey(raw).verify(text.encode(), base64.urlsafe_b64decode(signature + "=="))


@pytest.mark.parametrize("kind", ["operator", "account", "user"])
def test_a_key_comes_back_from_its_seed(kind: Any) -> None:
    key = new_key(kind)
    assert read_key(f" {key.seed}\n") == key
    assert (key.public[0], key.seed[:2]) == (kind[0].upper(), f"S{kind[0].upper()}")
    assert key.seed not in repr(key)


def test_keys_differ_and_come_from_the_given_randomness() -> None:
    assert new_key("user") != new_key("user")
    assert new_key("user", bytes) == new_key("user", bytes)


DAMAGE: dict[str, Callable[[str], str]] = {
    "empty": lambda seed: "",
    "cut short": lambda seed: seed[:-1],
    "one letter": lambda seed: seed[:20] + ("A" if seed[20] != "A" else "B") + seed[21:],
    "another kind": lambda seed: "SX" + seed[2:],
    "lower case": lambda seed: seed.lower(),
    "no ASCII": lambda seed: "ä" * 58,
    "twice": lambda seed: seed + seed,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_what_is_no_seed_is_refused_and_not_repeated(damage: Callable[[str], str]) -> None:
    seed = new_key("user").seed
    with pytest.raises(KeyRefusedError) as refused:
        read_key(damage(seed))
    assert seed[4:20] not in str(refused.value)


def test_a_jwt_is_signed_by_its_signer_and_says_whose_it_is() -> None:
    account, user = new_key("account"), new_key("user")
    jwt = signed(account, user, tags=[("tok", "t1"), ("lane", "n_B")], expires_s=NOW_S + 60)
    check_signature(jwt, account)
    with pytest.raises(nacl.exceptions.BadSignatureError):
        check_signature(jwt, new_key("account"))
    body = body_of(jwt)
    assert (body["iss"], body["sub"], body["name"]) == (account.public, user.public, "VID-001")
    assert (body["iat"], body["exp"]) == (NOW_S, NOW_S + 60)
    assert body["nats"]["tags"] == ["tok:t1", "lane:n_B"]
    assert "issuer_account" not in body["nats"]


def test_a_users_rights_come_from_its_scope_or_from_itself() -> None:
    account, user = new_key("account"), new_key("user")
    assert body_of(signed(account, user))["nats"].keys() == {"tags", "type", "version"}
    own = body_of(signed(account, user, rights=Rights(publish=["a.>"], subs_max=3)))["nats"]
    assert (own["pub"], own["sub"], own["subs"]) == ({"allow": ["a.>"]}, {}, 3)


def test_two_jwts_are_the_same_but_for_when_they_were_signed() -> None:
    account, user = new_key("account"), new_key("user")
    assert same_but_for_time(signed(account, user), signed(account, user, now_s=NOW_S + 9))
    assert not same_but_for_time(signed(account, user), signed(account, user, tags=[("a", "b")]))


@pytest.mark.parametrize("text", ["", "a.b", "a.b.c", "a.W10.c", "a.ä.c"])
def test_what_is_no_jwt_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="no JWT"):
        body_of(text)


def test_keys_are_files_for_their_owner_alone_and_come_back(tmp_path: Path) -> None:
    keys, operator = HubKeys.new(now_s=NOW_S)
    write_keys(tmp_path, keys)
    assert read_keys(tmp_path) == keys
    files = list(key_directory(tmp_path).iterdir())
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert key_directory(tmp_path).stat().st_mode & 0o777 == 0o700
    assert not any(operator.seed in path.read_text() for path in files), "it goes elsewhere"
    assert body_of(keys.operator_jwt)["nats"]["signing_keys"] == [keys.operator_signing.public]


def test_a_directory_without_keys_is_of_an_older_backhaul(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="older backhaul"):
        read_keys(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "No such file"),
        ("", "no seed"),
        pytest.param(
            new_key("user").seed, "seed of a user, not of an account", id="another kind of key"
        ),
    ],
)
def test_a_key_that_is_damaged_or_missing_is_named(
    tmp_path: Path, content: str | None, message: str
) -> None:
    write_keys(tmp_path, HubKeys.new(now_s=NOW_S)[0])
    path = key_directory(tmp_path) / "vehicles.nk"
    path.unlink() if content is None else path.write_text(content)
    with pytest.raises(ConfigError, match=f"vehicles.nk.*{message}"):
        read_keys(tmp_path)
