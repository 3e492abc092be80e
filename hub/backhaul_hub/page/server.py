"""The HTTP server of the page: files, and one POST for logins. Nothing that it is told is stored here."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Collection, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import structlog
from aiohttp import web

from backhaul_codec.errors import CodecError
from backhaul_codec.programs.page_policy import headers
from backhaul_codec.strict.json import Reader
from backhaul_hub import questions
from backhaul_hub.config import HubConfig, Login
from backhaul_hub.errors import HubError
from backhaul_hub.nats.connection import connect
from backhaul_hub.page.logins import SERVER, LoginGate, refusal
from backhaul_hub.page.map_file import URL as MAP
from backhaul_hub.page.map_file import MapFile
from backhaul_hub.page.page_files import INDEX, NOT_BUILT, PageFile, read_files
from backhaul_hub.page_settings import connects, origins, page_url
from backhaul_hub.servers import server_directories
from backhaul_hub.tls.files import SERVER as CERTIFICATE
from backhaul_hub.tls.files import TLS, has_tls
from backhaul_hub.tls.setup import is_loopback

log = structlog.get_logger(__name__)

FILES = Path(__file__).parent / "files"
_BODY_BYTES_MAX = 1024
_CERTIFICATE_LOOK_S = 60.0
_LASTING = "public, max-age=31536000, immutable"
_json = msgspec.json.encode


def speaks_tls(directory: Path, config: HubConfig) -> bool:
    """Tell whether the page is served over TLS: where others than this machine reach it, and the hub has TLS."""
    host = config.page.listen.rpartition(":")[0]
    return has_tls(directory) and not is_loopback(host)


@dataclass(eq=False)
class PageServer:
    """Answers browsers.

    Args:
        files: the page's, by name; empty: it is not built.
        origins: those that may log in.
        websockets: where the page finds the hub's server.
        log_in: passes on a login, and returns the answer.
        map_file: the operator's own map, or none.
        units: of series.
    """

    _files: Mapping[str, PageFile]
    _origins: Collection[str]
    _websockets: list[str]
    _log_in: Callable[[questions.PageLogin], Awaitable[bytes]]
    _map_file: MapFile | None = None
    _units: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._headers = headers(self._websockets)
        self._question = Reader(questions.PageLogin)

    def application(self) -> web.Application:
        """Return the application for aiohttp."""
        app = web.Application(client_max_size=_BODY_BYTES_MAX, middlewares=[self._each])
        app.router.add_get("/where.json", self._say_where)
        app.router.add_post("/login", self._take_login)
        app.router.add_get(f"/{MAP}", self._map)
        app.router.add_get("/{name:[^/]*}", self._file)
        return app

    @web.middleware
    async def _each(
        self,
        request: web.Request,
        handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
    ) -> web.StreamResponse:
        try:
            response = await handler(request)
        except web.HTTPException as error:
            # Without what was asked for: no answer holds words of a stranger.
            response = web.Response(status=error.status, text=error.reason)
        response.headers.update(self._headers)
        return response

    async def _say_where(self, _: web.Request) -> web.Response:
        said: dict[str, object] = {"kind": "hub", "websocket": self._websockets}
        said["units"] = self._units
        if self._map_file is not None:
            said["map"] = await asyncio.to_thread(self._map_file.as_json)
        return _answer(_json(said))

    async def _map(self, _: web.Request) -> web.StreamResponse:
        """Answer with the parts of the map that are asked for, as HTTP has it (Range)."""
        if self._map_file is None:
            raise web.HTTPNotFound
        kind = {"Content-Type": "application/octet-stream", "Cache-Control": "no-cache"}
        return web.FileResponse(self._map_file.path, headers=kind)

    async def _take_login(self, request: web.Request) -> web.Response:
        # A page of somebody else may have a browser post, but not say that it comes from here.
        if request.headers.get("Origin") not in self._origins:
            return _answer(_json(refusal("not from this page")), 403)
        if request.content_type != "application/json":
            return _answer(_json(refusal("no JSON")), 415)
        try:
            question = self._question.read(await request.read())
            return _answer(await self._log_in(question))
        except CodecError as error:
            return _answer(_json(refusal(str(error))), 400)
        except HubError as error:
            return _answer(_json(refusal(error.message, error.hint)), 503)

    async def _file(self, request: web.Request) -> web.Response:
        name = request.match_info["name"] or INDEX
        found = self._files.get(name)
        if found is None:
            if name == INDEX:
                return web.Response(status=503, text=NOT_BUILT, content_type="text/html")
            raise web.HTTPNotFound
        accepted = request.headers.get("Accept-Encoding", "")
        coding = next((each for each in found.forms if each in accepted), "")
        response = web.Response(body=found.forms[coding] if coding else found.plain)
        response.headers["Content-Type"] = found.content_type
        response.headers["Cache-Control"] = _LASTING if found.lasting else "no-cache"
        response.headers["Vary"] = "Accept-Encoding"
        if coding:
            response.headers["Content-Encoding"] = coding
        return response


async def serve(directory: Path, config: HubConfig, stop: asyncio.Event) -> None:
    """Serve the page until `stop`.

    Raises:
        HubError: the hub's server cannot be reached, or the address cannot be listened at.
    """
    page, tls = config.page, speaks_tls(directory, config)
    host, _, port = page.listen.rpartition(":")
    files = await asyncio.to_thread(read_files, FILES)
    if not files:
        log.warning("page_not_built", hint="make setup builds it (docs/page.md)")
    async with AsyncExitStack() as stack:
        login = Login(creds=str(directory / page.creds), ca=config.nats.control.ca)
        client = await connect(config.nats.url, login, inbox_prefix=SERVER.inbox)
        stack.push_async_callback(client.close)
        websockets = connects(page)
        own_map = MapFile(directory / page.map) if page.map else None
        if own_map and (problem := await asyncio.to_thread(own_map.problem)):
            log.warning(
                "page_map_not_read", error=problem, hint="see: docs/page.md, a map of your own"
            )
        gate = LoginGate(client)
        server = PageServer(
            files, origins(page, tls=tls), websockets, gate.log_in, own_map, page.units
        )
        # Questions of browsers are no news, and a log of their addresses serves nobody.
        runner = web.AppRunner(server.application(), access_log=None, handle_signals=False)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        context = await asyncio.to_thread(_certificate, directory) if tls else None
        site = web.TCPSite(runner, host.strip("[]"), int(port), ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            raise HubError(
                f"the page cannot be served at {page.listen}: {error.strerror}",
                hint="say another place in hub.toml, [page] listen",
            ) from error
        log.info("page_served", url=page_url(page, tls=tls))
        renewing = asyncio.create_task(_renew(directory, context)) if context else None
        try:
            await stop.wait()
        finally:
            if renewing:
                renewing.cancel()


def _certificate(directory: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _load(directory, context)
    return context


def _load(directory: Path, context: ssl.SSLContext) -> None:
    for target in server_directories(directory):
        if (target / TLS / CERTIFICATE).exists():
            context.load_cert_chain(target / TLS / CERTIFICATE)
            return
    raise HubError(f"{directory} has no certificate", hint="see: docs/tls.md")


async def _renew(directory: Path, context: ssl.SSLContext) -> None:
    """Show the certificate that there is now, for ever: `tls renew` tells nobody."""
    while True:
        await asyncio.sleep(_CERTIFICATE_LOOK_S)
        try:
            await asyncio.to_thread(_load, directory, context)
        except (HubError, OSError) as error:
            log.warning("certificate_not_read", error=str(error))


def _answer(body: bytes, status: int = 200) -> web.Response:
    response = web.Response(status=status, body=body, content_type="application/json")
    response.headers["Cache-Control"] = "no-store"
    return response
