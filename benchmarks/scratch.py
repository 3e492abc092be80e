"""Where a benchmark's servers and ledgers keep their files while it runs."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

# Beside the results and not in /tmp, which is memory on many machines: an fsync there costs
# nothing, and every figure about durability would be a lie.
OUT: ContextVar[Path] = ContextVar("OUT", default=Path("bench-out"))


@contextmanager
def directory(name: str) -> Iterator[Path]:
    """Make a directory on the disk that results go to, and remove it; kept if the run breaks."""
    OUT.get().mkdir(parents=True, exist_ok=True)
    path = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=OUT.get())).absolute()
    try:
        yield path
    except BaseException:
        print(f"{name}: logs and stores are left in {path}")
        raise
    shutil.rmtree(path)
