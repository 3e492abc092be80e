"""A real server for what nats-py is mended for."""

from tests.support.nats_server import nats_server

__all__ = ["nats_server"]
