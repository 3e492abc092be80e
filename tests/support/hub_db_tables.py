"""The tables that later schemas of hub.db brought, for tests that make an older one of today's."""

from __future__ import annotations

TABLES_BY_SCHEMA = {
    16: ("dictionary", "awaited_dictionary"),
    17: ("alert", "alert_told", "alert_silence", "alert_notice", "alert_position"),
    18: ("page_link", "page_session"),
    19: ("lane_log",),
    20: ("erasure", "erased_person", "audit_head", "audit_name", "audit_pending"),
}
"""By the schema that brought them."""


def tables_after(schema: int) -> list[str]:
    """Return the tables that a hub.db of this schema lacks, from schema 15 on."""
    return [
        name for brought, names in TABLES_BY_SCHEMA.items() if brought > schema for name in names
    ]
