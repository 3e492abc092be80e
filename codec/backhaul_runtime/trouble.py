"""Waiting out a failure: logged once, tried again after a while, and logged once when it is over."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger


class Trouble:
    """An asynchronous context: of the errors that it waits out it makes one warning and a pause.

        trouble = Trouble(log, "rotation_waits", HubError, NatsError)
        while True:
            async with trouble:
                await step()

    An error that it knows is logged as a warning, once until its text changes; then it sleeps, and the error
    is over. The first time without one is logged too. Any other error, and a cancellation, goes on its way.

    Args:
        log: a structlog logger.
        event: of the warning; it has `error`, and whatever `about` says.
        kinds: the errors that are waited out.
        over: the event of the end, "" for none.
        wait_s: seconds of the first pause.
        wait_s_max: where it is more, each pause is twice the one before, up to this.
        about: fields of both events.
    """

    def __init__(
        self,
        log: FilteringBoundLogger,
        event: str,
        *kinds: type[Exception],
        over: str = "recovered",
        wait_s: float = 1.0,
        wait_s_max: float = 0.0,
        **about: Any,
    ) -> None:
        self.now = ""
        """The text of the error, "" where the last time had none."""
        self._log = log
        self._event, self._over, self._about = event, over, about
        self._kinds = kinds
        self._wait_s, self._wait_s_max = wait_s, max(wait_s, wait_s_max)
        self._next_s = wait_s

    def note(self, error: object) -> None:
        """Take in a failure: an error, or a text."""
        text = str(error) or repr(error)
        if text != self.now:
            self._log.warning(self._event, error=text, **self._about)
        self.now = text

    def end(self) -> None:
        """Take in that there is none any more."""
        if self.now and self._over:
            about = {"event_before": self._event} if self._over == "recovered" else {}
            self._log.info(self._over, **about, **self._about)
        self.now, self._next_s = "", self._wait_s

    async def pause(self) -> None:
        """Sleep until the next attempt."""
        wait_s, self._next_s = self._next_s, min(self._next_s * 2, self._wait_s_max)
        await asyncio.sleep(wait_s)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if error is None:
            self.end()
        if not isinstance(error, self._kinds):
            return False
        self.note(error)
        await self.pause()
        return True
