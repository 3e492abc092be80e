"""A reverse proxy that ends TLS for page and WebSocket, as docs/page.md says it: nginx."""

from __future__ import annotations

import shutil
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from tests.support.needed import lacking
from tests.support.rig.parts import Part

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

_CONF = """
daemon off;
master_process off;
pid {place}/nginx.pid;
error_log stderr warn;
events {{}}
http {{
  access_log off;
  client_body_temp_path {place}/body;
  proxy_temp_path {place}/proxy;
  fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi;
  scgi_temp_path {place}/scgi;
  server {{
    listen 127.0.0.1:{port} ssl;
    ssl_certificate {certificate};
    ssl_certificate_key {certificate};
    location = /nats {{
      proxy_pass http://127.0.0.1:{websocket}/;
      proxy_http_version 1.1;
      proxy_set_header Upgrade $http_upgrade;
      proxy_set_header Connection "upgrade";
      proxy_read_timeout 1h;
    }}
    location / {{
      proxy_pass http://127.0.0.1:{page};
    }}
  }}
}}
"""


@asynccontextmanager
async def proxy(
    place: Path, *, port: int, page: int, websocket: int, certificate: Path
) -> AsyncIterator[None]:
    """Run nginx in a directory of its own; the test is skipped where there is none."""
    # Debian has it where root alone looks for programs.
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is None:
        lacking("no nginx on PATH: sudo apt install nginx-light (tools/system-packages)")
    place.mkdir()
    conf = place / "nginx.conf"
    conf.write_text(
        _CONF.format(
            place=place, port=port, page=page, websocket=websocket, certificate=certificate
        )
    )
    words = [program, "-e", "stderr", "-p", str(place), "-c", str(conf)]
    part = Part("nginx", words, place / "nginx.log")
    await part.start()
    try:
        await part.wait_listening(port)
        yield
    finally:
        await part.stop()
