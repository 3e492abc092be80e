"""Start the park and hold it until a line comes on stdin: for looking at the page by hand, `python -m tests.browser.hold`."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from .park import park


async def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with park(Path(directory)) as some:
            for name in ("olga", "anna"):
                _say(await some.link(name, "--for", "2h"))
            while (await asyncio.to_thread(sys.stdin.readline)).strip() != "end":
                _say(await some.link("olga", "--for", "2h"))


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(main())
