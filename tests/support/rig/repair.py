"""A damaged server of a cluster, repaired by `backhaul-hub repair-server --by-hand`: the rig is the hand."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from tests.support.rig.parts import RigError, program, run_to_end

if TYPE_CHECKING:
    from tests.support.rig.cluster import ClusterRig

_STEP_S = 300.0


async def repaired(hub: ClusterRig, server: str) -> str:
    """Have the real command repair a server; return what it said.

    Raises:
        RigError: it refused, or stood still for five minutes.
    """
    command = [program("backhaul-hub"), "repair-server", server, "--yes", "--by-hand"]
    process = await asyncio.create_subprocess_exec(
        *command,
        *("--dir", str(hub.directory)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    assert process.stdout is not None
    said: list[str] = []
    try:
        async with asyncio.timeout(_STEP_S) as limit:
            while line := (await process.stdout.readline()).decode():
                said.append(line)
                limit.reschedule(asyncio.get_running_loop().time() + _STEP_S)
                await _act(hub, server, line)
            await process.wait()
    except TimeoutError:
        said.append("and stood still")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode:
        raise RigError(f"{' '.join(command)} ended with {process.returncode}: {''.join(said)}")
    return "".join(said)


async def _act(hub: ClusterRig, server: str, line: str) -> None:
    if line.startswith("now: stop server"):
        await hub.servers[server].stop()
    elif line.startswith("mv "):
        await asyncio.to_thread(shutil.rmtree, line.split()[-1], ignore_errors=True)
        await run_to_end(line.split())
    elif line.startswith("mkdir "):
        await run_to_end(line.split())
    elif line.startswith("then: start server"):
        await hub.start_server(server)
