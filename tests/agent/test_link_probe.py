"""Why there is no link: what another server of the vehicle's is told, in words.

Not covered here: a real hub that revokes (tests/integration/test_enrolment.py).
"""

from __future__ import annotations

import pytest

from backhaul_agent.enrol.link_probe import explain, why_no_link
from backhaul_agent.leaf.config_text import leaf_urls_of
from backhaul_codec.protocol.credentials import Credentials
from tests.agent.probed_files import KEY, NOW_S, files


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
