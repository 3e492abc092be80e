"""Why there is no link: what another server of the vehicle's is told, in words.

Not covered here: a real hub that revokes (tests/integration/test_enrolment.py).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from backhaul_agent.enrol import link_probe
from backhaul_agent.enrol.link_probe import explain, why_no_link
from backhaul_agent.leaf.config_text import LeafServer, leaf_urls_of, render_leaf
from backhaul_codec.protocol.credentials import Credentials
from backhaul_codec.protocol.identity import Identity
from backhaul_hub.nats.jwt import Rights, user_jwt
from backhaul_hub.nats.nkey import new_key
from tests.support.enrolment_tokens import user_key
from tests.support.nats_server import NatsServer
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from pathlib import Path

KEY = user_key(2)
NOW_S = 1_700_000_000.0


def files(*urls: str) -> dict[str, str]:
    """What a vehicle has whose hub is there."""
    signer = new_key("account")
    jwt = user_jwt("VID-001", KEY.public_key, signer, signer.public, now_s=1, rights=Rights())
    identity = Identity(device="VID-001", token="ab", leaf_urls=urls, jwt=jwt)
    return {
        "leaf.conf": render_leaf(identity, LeafServer(4222, "/store")),
        "device.creds": Credentials(KEY.seed, KEY.public_key, jwt).text(),
    }


def test_the_hubs_addresses_are_read_from_leaf_conf() -> None:
    urls = ("nats-leaf://hub.example.org:7422", "tls://[::1]:7422")
    assert leaf_urls_of(files(*urls)["leaf.conf"]) == urls
    assert leaf_urls_of("leafnodes {}") == ()


def test_what_is_refused_is_said_with_the_key_and_what_can_be_known_of_it() -> None:
    said = explain("Leafnode Error 'Authorization Violation'", KEY, NOW_S)
    assert f"does not let the key {KEY.public_key} in: it was revoked or replaced" in said
    late = Credentials(KEY.seed, KEY.public_key, expires_s=int(NOW_S) - 1)
    assert "they expired at 2023-11-14" in explain("'Authorization Violation'", late, NOW_S)
    assert "x509: unknown authority" in explain("x509: unknown authority", KEY, NOW_S)
    assert explain("", KEY, NOW_S) == ""


@pytest.mark.parametrize("lacks", ["leaf.conf", "device.creds"])
async def test_of_a_vehicle_without_its_files_nothing_is_said(lacks: str) -> None:
    found = files("nats-leaf://127.0.0.1:1")
    del found[lacks]
    assert await why_no_link(found, NOW_S) == ""


async def test_damaged_credentials_are_the_reason() -> None:
    found = files("nats-leaf://127.0.0.1:1") | {"device.creds": "damaged"}
    assert "device.creds holds no login" in await why_no_link(found, NOW_S)


@pytest.mark.nats
async def test_nobody_there_a_login_that_is_refused_and_one_that_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    port = free_port()
    found = files(f"nats-leaf://127.0.0.1:{port}")
    for limit in ("TRY_S_MAX", "SETTLED_S"):  # a complaint ends it at once, however late it comes
        monkeypatch.setattr(link_probe, limit, 120.0)
    said = await why_no_link(found, NOW_S)
    assert re.search("no link to the hub: .*refused", said), said

    listen = f'listen: "127.0.0.1:{port}"'
    strict = NatsServer(
        tmp_path / "strict",
        extra=f"leafnodes {{ {listen}, authorization {{ user: a, password: b }} }}",
    )
    strict.start()
    try:
        assert "does not let the key" in await why_no_link(found, NOW_S)
    finally:
        strict.stop()

    monkeypatch.setattr(link_probe, "SETTLED_S", 0.5)
    lenient = NatsServer(tmp_path / "lenient", extra=f"leafnodes {{ {listen} }}")
    lenient.start()
    try:
        assert await why_no_link(found, NOW_S) == ""
    finally:
        lenient.stop()
