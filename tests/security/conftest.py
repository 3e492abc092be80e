"""Fixtures that tests of a single vehicle need here."""

from tests.support.nats_server import nats_server

__all__ = ["nats_server"]
