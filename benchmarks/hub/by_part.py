"""Samples of a control plane's processor time, by the part of it that takes the time.

A timer of the process's own processor time interrupts it a hundred times a second; the innermost function that the table names says
whose time that was. The rest is the time of tasks that the table does not name, and of the thread that writes hub.db.
"""

from __future__ import annotations

import gc
import json
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType

_EVERY_S = 0.01
_WRITTEN_EVERY = 50
READING, TELLING, HEALTH, REST = "reader", "telling", "health", "rest"
GARBAGE = "of that: search for garbage"
PARTS = {
    "SyncShell.start.<locals>.tell": TELLING,
    "UplinkTurns.run": READING,
    "Client._read_loop": READING,
    "_SelectorSocketTransport._read_ready": READING,
    "Client._flusher": TELLING,
    "WatermarkNotifier.tell_watermarks": TELLING,
    "WatermarkNotifier.ask_for_gaps": TELLING,
    "StatePublisher.run": TELLING,
    "Rebroadcast.run": TELLING,
    "Speaker.run": TELLING,
    "Presence.run": TELLING,
    "SyncShell._tell_devices": TELLING,
    "ShadowKeeper.publish": TELLING,
    "HealthWatch.run": HEALTH,
    "AlertService._run": HEALTH,
}
"""By the qualified names of functions."""


class Samples:
    """Counts where this process is; its main thread alone runs Python code of the parts.

    Args:
        path: of the file that the sums are written into, in seconds.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._used: Counter[str] = Counter()
        self._last_s = time.process_time()
        self._samples = 0
        self._collecting_s = 0.0
        self._codes: dict[object, str | None] = {}

    def start(self) -> None:
        """Begin to count."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, _EVERY_S, _EVERY_S)
        gc.callbacks.append(self._collect)

    def _sample(self, _: int, frame: FrameType | None) -> None:
        now_s = time.process_time()
        self._used[self._part(frame)] += now_s - self._last_s  # type: ignore[assignment]
        self._last_s = now_s
        self._samples += 1
        if self._samples % _WRITTEN_EVERY == 0:
            new = self._path.with_suffix(".new")
            new.write_text(json.dumps(self._used))
            new.replace(self._path)

    def _part(self, frame: FrameType | None) -> str:
        while frame is not None:
            if (part := PARTS.get(frame.f_code.co_qualname)) is not None:
                return part
            frame = frame.f_back
        return REST

    def _collect(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting_s = time.thread_time()
        else:
            self._used[GARBAGE] += time.thread_time() - self._collecting_s  # type: ignore[assignment]


def read(path: Path) -> dict[str, float]:
    """Return the seconds of each part up to now; nothing where none were written yet."""
    return json.loads(path.read_text()) if path.exists() else {}
