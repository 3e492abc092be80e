"""With real servers: asking a hub to be enrolled: over a bad link, interrupted anywhere, refused for any reason."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from nats.errors import NoRespondersError

from backhaul_agent.enrol.temporary_leaf import asking, temporary_leaf
from tests.support.enrolment_tokens import some_token
from tests.support.rig.ports import free_port
from tests.support.waiting import until

pytestmark = pytest.mark.nats

TOKEN = some_token()


async def test_the_server_to_ask_with_says_why_there_is_no_link_and_leaves_nothing(
    tmp_path: Path,
) -> None:
    token = some_token(f"nats-leaf://127.0.0.1:{free_port()}")
    target = tmp_path / "asking"
    async with temporary_leaf(token, target) as leaf:
        assert (target / "token.creds").stat().st_mode & 0o777 == 0o600
        assert target.stat().st_mode & 0o777 == 0o700
        await until(lambda: any("refused" in each for each in leaf.complaints()))
        with pytest.raises(NoRespondersError):
            async with asking(leaf, token) as client:
                await client.request("enrol.x", b"", timeout=30)
    assert not target.exists()


async def test_the_server_ends_with_a_killed_parent_and_the_next_run_clears_up(
    tmp_path: Path,
) -> None:
    script = """\
import asyncio, sys
from pathlib import Path
from backhaul_agent.enrol.temporary_leaf import asking, temporary_leaf
from tests.support.enrolment_tokens import some_token

async def main():
    async with temporary_leaf(some_token(), Path(sys.argv[1])):
        print("runs", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""
    target = tmp_path / "asking"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", script, str(target), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"runs\n"
    server = int(next(target.glob("*.ports")).stem.rpartition("_")[2])
    process.kill()
    await process.wait()
    await until(lambda: _gone(server))
    assert (target / "token.creds").exists()
    async with temporary_leaf(TOKEN, target):
        assert len(list(target.glob("*.ports"))) == 1
    assert not target.exists()


def _gone(pid: int) -> bool:
    try:
        said = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    # Killed, and not yet collected by whoever took it over.
    return said.rpartition(")")[2].split()[0] == "Z"
