"""The technician's page of one agent: its code, its sessions, its server. Loaded only where `[page] listen` says so."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import msgspec
import structlog
from msgspec import Meta
from nats.aio.client import Client

from backhaul_agent.apps.program_json import read_program_json
from backhaul_agent.commit.heads import HeadKeeper
from backhaul_agent.config import Config
from backhaul_agent.errors import RefusedError
from backhaul_agent.ledger.ledger import Ledger
from backhaul_agent.page.answers import Ask, PageAnswers
from backhaul_agent.page.code_file import PageCode, remove_code, write_code
from backhaul_agent.page.gate import CodeGate, CodeRefusedError, make_code
from backhaul_agent.page.live_values import LiveValues
from backhaul_agent.page.web import PageWeb
from backhaul_codec.strict.json import Reader
from backhaul_runtime.clock import Clock
from backhaul_runtime.scrape_server import ScrapeServer

FILES = Path(__file__).parent / "files"
TIDY_S = 5.0
log = structlog.get_logger("page")


class CodeSaid(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """The code as a person typed it."""

    code: Annotated[str, Meta(max_length=64)]


_read_code = Reader(CodeSaid).read


class TechnicianPage:
    """Serves the page for as long as the daemon lives. ``live`` is told of programs' messages."""

    def __init__(
        self,
        config: Config,
        ledger: Ledger,
        keeper: HeadKeeper,
        *,
        status: Callable[[], dict[str, Any]],
        client: Callable[[], Client | None],
        recent: Ask,
        clock: Clock,
    ) -> None:
        self.live = LiveValues(config.page.units)
        self._device = config.device.id
        self._config = config.page
        self._ledger = Path(config.ledger.path)
        self._clock = clock
        self._code = make_code(secrets.token_bytes)
        self._gate = CodeGate(
            self._code, lambda: secrets.token_urlsafe(32), config.page.session_h * 3600
        )
        self._answers = PageAnswers(
            ledger, keeper, self.live, status=status, client=client, recent=recent, clock=clock
        )

    async def run(self) -> None:
        """Serve until cancelled; where the address cannot be had that is logged, and everything else goes on."""
        listen = self._config.listen
        host, _, port = listen.rpartition(":")
        try:
            server = ScrapeServer(host, int(port), self._clock.monotonic_s)
        except (OSError, OverflowError) as error:
            log.error("page_not_served", listen=listen, error=str(error))  # noqa: TRY400
            return
        loop = asyncio.get_running_loop()
        server.set_app(PageWeb(FILES, self._config.names, self.answer, loop))
        threading.Thread(target=server.serve_forever, daemon=True, name="page").start()
        try:
            write_code(self._ledger, PageCode(listen, self._code))
            log.info("page_served", listen=listen)
            while True:
                await asyncio.sleep(TIDY_S)
                self._answers.tidy()
        except OSError as error:
            log.error("page_code_not_written", error=str(error))  # noqa: TRY400
        finally:
            # Its thread ends within half a second; nobody has to wait for that.
            await asyncio.shield(asyncio.to_thread(server.shutdown))
            server.server_close()
            _forget_code(self._ledger)

    async def answer(
        self, name: str, address: str, token: str, body: bytes
    ) -> tuple[int, dict[str, Any]]:
        """Return the HTTP status and the JSON of the answer to a POST."""
        now_s = self._clock.monotonic_s()
        if name == "login":
            return self._log_in(address, body, now_s)
        if not self._gate.knows(token, now_s):
            return 401, RefusedError("no_session", "the code is needed, once more").as_json()
        if name == "logout":
            self._gate.log_out(token)
            return 200, {}
        question = name.removeprefix("ask/")
        if question == name or not self._answers.has(question):
            text = "this agent knows no such question"
            return 404, RefusedError("no_such_question", text).as_json()
        return 200, await self._answers.ask(question, body)

    def _log_in(self, address: str, body: bytes, now_s: float) -> tuple[int, dict[str, Any]]:
        try:
            code = read_program_json(_read_code, body).code
            token = self._gate.log_in(code, address, now_s)
        except RefusedError as error:
            return 400, error.as_json()
        except CodeRefusedError as error:
            if error.judged:
                log.warning("page_code_refused", address=address, tries=error.tries)
            status = 403 if error.judged else 429
            said = RefusedError("not_let_in", str(error)).as_json()
            return status, {**said, "wait_s": round(error.wait_s, 1)}
        log.info("page_let_in", address=address)
        return 200, {"token": token, "device": self._device}


def _forget_code(ledger: Path) -> None:
    try:
        remove_code(ledger)
    except OSError as error:
        log.warning("page_code_not_removed", error=str(error))
