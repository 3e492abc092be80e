"""The listener for browsers: websocket.conf beside each server's hub.conf, which includes it.

It is a file of its own because it changes with the page's address: the server lets in browsers alone that
come from that page. Vehicles do not come in here, as their JWTs say LEAFNODE and not LEAFNODE_WS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from backhaul_codec.programs.nats_conf import quoted
from backhaul_hub.errors import ConfigError
from backhaul_hub.private_files import write_private
from backhaul_hub.servers import server_directories
from backhaul_hub.tls.conf_text import tls_block
from backhaul_hub.tls.files import SERVER, TLS
from backhaul_hub.tls.setup import is_loopback

CONF = "websocket.conf"
INCLUDE = f'include "{CONF}"'


@dataclass(frozen=True, slots=True)
class WebSocketListener:
    """Where one server listens for browsers."""

    host: str
    port: int
    origins: Sequence[str]
    """Of the page, as in https://fleet.example.org."""
    tls: str = ""
    """The block with which it speaks TLS; empty: it does not."""


def render_websocket(settings: WebSocketListener) -> str:
    """Render websocket.conf."""
    indented = "".join(f"  {line}\n" for line in settings.tls.splitlines())
    return f"""\
# Browsers, written by `backhaul-hub init` or `backhaul-hub page-listener`.
websocket {{
  listen: {quoted(f"{settings.host}:{settings.port}")}
  # A browser says which page has opened the connection: those of this hub's page alone are let in.
  allowed_origins: [{", ".join(map(quoted, settings.origins))}]
  compression: true
  handshake_timeout: "10s"
{indented or "  no_tls: true" + chr(10)}}}
"""


def write_listener(
    directory: Path, host: str, port: int, origins: Sequence[str], *, tls: bool
) -> list[Path]:
    """Write the listener of each server of an existing hub, and have its hub.conf include it; return the files.

    Args:
        directory: the hub directory.
        host: where it listens.
        port: likewise.
        origins: of the page.
        tls: whether it speaks TLS, with the certificate that the server shows anyway.

    Raises:
        ConfigError: others than this machine would reach a listener without TLS; or there is no certificate,
            or no hub.conf; or a file cannot be written.
    """
    if not (tls or is_loopback(host)):
        raise ConfigError(
            f"others reach {host}, and the listener would speak no TLS",
            hint="make the hub with TLS (docs/tls.md), or listen on 127.0.0.1 behind a proxy",
        )
    written = []
    try:
        for target in server_directories(directory):
            if tls and not (target / TLS / SERVER).exists():
                raise ConfigError(f"{target} has no certificate", hint="see: docs/tls.md")
            block = tls_block(target) if tls else ""
            text = render_websocket(WebSocketListener(host, port, origins, block))
            conf = (target / "hub.conf").read_text()
            write_private(target / CONF, text)
            if INCLUDE not in conf.splitlines():
                write_private(target / "hub.conf", f"{conf.rstrip()}\n\n# Browsers.\n{INCLUDE}\n")
            written.append(target / CONF)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return written
