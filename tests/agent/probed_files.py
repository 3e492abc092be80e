"""A vehicle's files, and the key with which its link is tried."""

from __future__ import annotations

from backhaul_agent.leaf.config_text import LeafServer, render_leaf
from backhaul_codec.protocol.credentials import Credentials
from backhaul_codec.protocol.identity import Identity
from backhaul_hub.nats.jwt import Rights, user_jwt
from backhaul_hub.nats.nkey import new_key
from tests.support.enrolment_tokens import user_key

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
