"""Accounts at a hub: the revocations in force, and the imports that lead to the API of SYS."""

from __future__ import annotations

from backhaul_hub.access.revocations import FOR_EVER_S, Revocation, in_force
from backhaul_hub.access.up_guard import leading_to_api
from backhaul_runtime.clock import SystemClock

NOW_S = SystemClock().now_ns() // 10**9


def test_only_what_leads_to_the_api_of_sys_counts() -> None:
    imports = [
        {"type": "service", "account": "SYS", "subject": "$JS.API.>", "local_subject": "a.>"},
        {"type": "service", "account": "SYS", "subject": "$JS.API.>"},
        {"type": "service", "account": "SYS", "subject": "void.>", "local_subject": "$JS.API.>"},
        {"type": "service", "account": "FLEET", "subject": "$JS.API.x", "local_subject": "b"},
        {"type": "stream", "subject": "dlv.*.*", "account": "FLEET"},
    ]
    assert leading_to_api(imports, "SYS") == {"a.>", "$JS.API.>"}


def test_what_has_expired_by_itself_needs_no_revocation() -> None:
    rows = [
        Revocation("UA", "FLEET", "VID-001", 0),
        Revocation("UB", "PEOPLE", "ann", 0, expires_s=NOW_S + 1),
        Revocation("UC", "PEOPLE", "bob", 0, expires_s=NOW_S),
        # Of a device that was revoked before its key was known: no server takes that for a key.
        Revocation("?VID-002", "FLEET", "VID-002", 0),
    ]
    assert in_force(rows, NOW_S) == {"FLEET": {"UA": FOR_EVER_S}, "PEOPLE": {"UB": FOR_EVER_S}}
