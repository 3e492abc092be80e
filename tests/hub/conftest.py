"""Fixtures of the hub's tests."""

from tests.hub.backups import client
from tests.hub.lossy_up import up
from tests.hub.people_hub import people
from tests.support.nats_server import nats_server

__all__ = ["client", "nats_server", "people", "up"]
