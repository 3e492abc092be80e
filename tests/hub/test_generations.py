"""Which generation an account is pushed as, and what the log of revocations holds. Without a server."""

from __future__ import annotations

import json
import stat
from typing import TYPE_CHECKING

import pytest

from backhaul_hub.access.generations import Generation, digest_of, next_generation, of_jwt
from backhaul_hub.access.keys import HubKeys, write_keys
from backhaul_hub.access.revocations import FOR_A_WHILE_S, FOR_EVER_S, Revocation
from backhaul_hub.access.signed_log import REVOCATIONS, RevocationLog
from backhaul_hub.errors import ConfigError
from backhaul_hub.nats.jwt import Account, account_jwt, body_of, generation_of, with_revocations
from backhaul_hub.nats.nkey import new_key

if TYPE_CHECKING:
    from pathlib import Path

    from backhaul_hub.nats.nkey import Key

NEW, OLD = "says this now", "said that before"
NOTHING = Generation()


@pytest.mark.parametrize(
    ("own", "there", "expected"),
    [
        (NOTHING, [Generation(0, NEW)], Generation(0, NEW)),  # as `init` wrote it
        (NOTHING, [Generation(0, OLD)], Generation(1, NEW)),
        (NOTHING, [NOTHING], Generation(1, NEW)),  # a server without accounts
        (NOTHING, [], Generation(1, NEW)),  # no server answers: it may have others
        (Generation(3, NEW), [Generation(3, NEW)], Generation(3, NEW)),
        (Generation(3, NEW), [Generation(2, OLD), NOTHING], Generation(3, NEW)),
        (Generation(3, OLD), [Generation(3, OLD)], Generation(4, NEW)),
        (Generation(3, OLD), [Generation(3, "of another hub.db")], Generation(4, NEW)),
        (Generation(2, OLD), [Generation(3, NEW)], Generation(3, NEW)),
        (Generation(2, NEW), [Generation(3, OLD)], None),
        (Generation(2, NEW), [Generation(1, OLD), Generation(3, OLD)], None),
        (NOTHING, [Generation(1, OLD)], None),
    ],
)
def test_a_generation_goes_up_with_each_change_and_never_down(
    own: Generation, there: list[Generation], expected: Generation | None
) -> None:
    assert next_generation(own, there, NEW) == expected


@pytest.fixture
def signer() -> Key:
    return new_key("operator")


def fleet(signer: Key, *, generation: int = 0, now_s: int = 5, **revoked: int) -> str:
    public = "A" * 56
    return account_jwt(
        Account("FLEET"), public, signer, revoked, now_s=now_s, generation=generation
    )


def test_what_an_account_says_is_the_same_whenever_and_however_often_it_was_signed(
    signer: Key,
) -> None:
    first = fleet(signer, UA=FOR_EVER_S)
    assert digest_of(first) == digest_of(fleet(signer, generation=7, now_s=9, UA=FOR_EVER_S))
    assert digest_of(first) == digest_of(fleet(signer, UA=FOR_EVER_S, UB=FOR_A_WHILE_S))
    assert digest_of(first) != digest_of(fleet(signer, UA=FOR_EVER_S, UB=FOR_EVER_S))
    assert of_jwt(fleet(signer, generation=7)) == Generation(7, digest_of(fleet(signer)))


@pytest.mark.parametrize("jwt", ["", "a.b.c", "e30.e30.e30", "e30.eyJuYXRzIjogM30.e30"])
def test_what_is_no_account_is_the_lowest(jwt: str) -> None:
    assert of_jwt(jwt) == NOTHING


def test_an_account_without_a_generation_has_no_tag(signer: Key) -> None:
    """As those of hubs from before there were any."""
    assert "tags" not in body_of(fleet(signer))["nats"]
    assert generation_of(fleet(signer)) == 0


def test_an_account_with_further_revocations_says_the_same_otherwise(signer: Key) -> None:
    before = fleet(signer, generation=7, UA=FOR_EVER_S)
    both = {"UA": FOR_EVER_S, "UB": FOR_EVER_S}
    after = with_revocations(before, both, signer, now_s=9)
    assert after == fleet(signer, generation=7, now_s=9, **both)


# The log.


@pytest.fixture
def log(tmp_path: Path) -> RevocationLog:
    keys, _ = HubKeys.new(now_s=0)
    write_keys(tmp_path, keys)
    return RevocationLog(tmp_path, keys.operator_signing)


def row(number: int) -> Revocation:
    return Revocation(f"U{number}", "FLEET", f"VID-{number}", number, expires_s=number)


def path_of(directory: Path) -> Path:
    return directory / "keys" / REVOCATIONS


def again(directory: Path, log: RevocationLog) -> dict[str, Revocation]:
    """Read the file as another process does."""
    return RevocationLog(directory, log._signer).rows()


def test_what_was_added_is_there_and_is_added_once(tmp_path: Path, log: RevocationLog) -> None:
    assert log.rows() == {}
    log.add([row(1)])
    log.add([row(1), row(2)])
    assert again(tmp_path, log) == log.rows() == {"U1": row(1), "U2": row(2)}
    assert len(path_of(tmp_path).read_text().splitlines()) == 2
    assert stat.S_IMODE(path_of(tmp_path).stat().st_mode) == 0o600


def test_what_another_process_has_added_is_seen(tmp_path: Path, log: RevocationLog) -> None:
    log.add([row(1)])
    RevocationLog(tmp_path, log._signer).add([row(2)])
    assert log.rows().keys() == {"U1", "U2"}


def test_a_line_that_nobody_with_the_key_has_written_says_nothing(
    tmp_path: Path, log: RevocationLog
) -> None:
    """Else whoever writes there shuts out whom they like."""
    RevocationLog(tmp_path, new_key("operator")).add([row(1)])
    log.add([row(2)])
    path = path_of(tmp_path)
    said = json.loads(path.read_text().splitlines()[1])
    with path.open("a") as file:
        file.write(json.dumps(said | {"public_key": "U3"}) + "\n")
        file.write('{"a": 1}\n[]\n3\nno json\n' + "[" * 5000 + "\n")
    assert again(tmp_path, log) == {"U2": row(2)}


def test_a_line_that_was_cut_takes_no_other_with_it(tmp_path: Path, log: RevocationLog) -> None:
    log.add([row(1), row(2)])
    path = path_of(tmp_path)
    whole = path.read_bytes()
    for cut in range(1, len(whole.splitlines()[1]) + 2, 7):
        path.write_bytes(whole[:-cut])
        fresh = RevocationLog(tmp_path, log._signer)
        fresh.add([row(2), row(3)])
        assert again(tmp_path, log) == {"U1": row(1), "U2": row(2), "U3": row(3)}


def test_a_file_that_cannot_be_read_is_said(tmp_path: Path, log: RevocationLog) -> None:
    path_of(tmp_path).mkdir()
    with pytest.raises(ConfigError, match=REVOCATIONS):
        log.add([row(1)])
