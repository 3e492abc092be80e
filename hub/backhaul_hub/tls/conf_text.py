"""TLS in nats-server's configuration language. Pure."""

from __future__ import annotations

from pathlib import Path

from backhaul_codec.programs.nats_conf import quoted
from backhaul_hub.tls.files import CA, SERVER, TLS


def tls_block(target: Path, *, peers: bool = False) -> str:
    """Return the block that has a port speak TLS.

    Args:
        target: the directory of the server's files. Absolute in the text: the server takes a
            relative path from where it was started.
        peers: the port is for servers, which show one another their certificates.
    """
    place = target.absolute() / TLS
    server = quoted(str(place / SERVER))
    peers_ca = f"  ca_file: {quoted(str(place / CA))}\n" if peers else ""
    # With the default of 2 s no link of 1.2 s round trip comes up.
    return f"""\
tls {{
  cert_file: {server}
  key_file: {server}
{peers_ca}  timeout: 10
}}
"""
