"""Jobs on Spark as processes: kept running as systemd keeps them, and killed whole or in part."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil  # type: ignore[import-untyped]
import pyspark

from backhaul_hub.setup.hub_directory import HubLayout
from backhaul_hub.simulated.target import make_test_hub
from backhaul_runtime.clock import SystemClock
from tests.support.errors import TrialError
from tests.support.rig.parts import Part, program
from tests.support.rig.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_ROOT = Path(__file__).parents[3]
# Code that is compiled quickly starts quickly.
_ENVIRONMENT = {
    "SPARK_LOCAL_IP": "127.0.0.1",
    "JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
# What failed is started again soon, what ended well by its timer.
_AGAIN_S, _TIMER_S = 1.0, 10.0
_STOP_S = 120.0
# Cores of the executor of a local cluster, and its memory in MB.
_CLUSTER = "local-cluster[1,1,1024]"


def simulated_hub(directory: Path, *, shards: int, up_gib: int) -> tuple[Part, int]:
    """Make a hub that takes simulated fleets in `directory`/hub; return its server and its port."""
    port = free_port()
    layout = HubLayout(
        client_host="127.0.0.1",
        host="127.0.0.1",
        client_port=port,
        leaf_port=free_port(),
        leaf_url="nats-leaf://127.0.0.1:7422",
        shards=shards,
        watermark_interval_s=5.0,
        up_gib=up_gib,
        env="test",
        sync_interval="2m",
    )
    hub = directory / "hub"
    make_test_hub(hub, layout, SystemClock())
    command = [program("nats-server"), "-c", str(hub / "hub.conf")]
    return Part("hub", command, directory / "hub.log"), port


def batches_done(checkpoint: Path) -> int:
    """Return how many batches a job has committed to Spark."""
    return _batches(checkpoint / "commits")


def messages_read(checkpoint: Path) -> int:
    """Return how many messages of UP a job has done with, by what it has committed to Spark."""
    done = batches_done(checkpoint)
    if not done:
        return 0
    offset = json.loads((checkpoint / "offsets" / str(done - 1)).read_text().splitlines()[-1])
    return sum(mark["seq"] for name, mark in offset["streams"].items() if name.startswith("UP_"))


def in_a_batch(checkpoint: Path) -> bool:
    """Tell whether a batch was begun that is not committed."""
    return _batches(checkpoint / "offsets") > batches_done(checkpoint)


def _batches(directory: Path) -> int:
    # Of old ones the files are taken away; they count from 0.
    return max((int(each.name) for each in directory.glob("[0-9]*")), default=-1) + 1


def on_cluster(directory: Path, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs `backhaul-spark ...` with an executor in a JVM of its own."""
    command = [sys.executable, str(_ROOT / "tools" / "spark-zip"), str(directory)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.pyspark.python": sys.executable,
    }
    return [
        str(Path(pyspark.__file__).parent / "bin" / "spark-submit"),
        *("--master", _CLUSTER),
        *(word for key, text in settings.items() for word in ("--conf", f"{key}={text}")),
        *("--py-files", str(directory / "backhaul-spark.zip")),
        *(str(directory / "backhaul-spark.py"), *arguments),
    ]


class Job:
    """One job, started again whenever it has ended, until it is told to stop.

    As systemd has it: when the process that was started ends, what is left of its processes is
    killed before it is started again. So two of them never write at the same time.

    Args:
        name: of the job.
        command: starts it the first time.
        log: gets its output.
        again: starts it from then on, if by another command.
        ends: it ends by itself when its work is done.
    """

    def __init__(
        self,
        name: str,
        command: list[str],
        log: Path,
        *,
        again: list[str] | None = None,
        ends: bool = False,
    ) -> None:
        self.name = name
        self.log = log
        self.starts = 0
        self.finished = 0
        """How often it ended well."""
        self.unasked: list[str] = []
        """How it ended in failure without having been killed in any part."""
        self._command = command
        self._again = again or command
        self._ends = ends
        self._process: asyncio.subprocess.Process | None = None
        self._known: set[psutil.Process] = set()
        self._hit = False
        self._stopping = False
        self._keeping: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to keep it running."""
        self._keeping = asyncio.create_task(self._keep())

    @property
    def running(self) -> bool:
        """Tell whether it runs now."""
        return self._process is not None and self._process.returncode is None

    def kill(self, what: str, choose: int) -> bool:
        """Kill a part of it with SIGKILL; return whether there was such a part.

        Args:
            what: `job` (all its processes), `driver` (the Python program), `jvm` (Spark's driver),
                `executor` (a JVM beside it), `worker` (a Python process that Spark has started).
            choose: picks one of several, by its remainder.
        """
        tree = self._tree()
        found = [process for process in tree if what in ("job", _role(process))]
        if what != "job" and found:
            found = [found[choose % len(found)]]
        self._hit |= bool(found)
        for process in found:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        return bool(found)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Have all its processes stand still meanwhile (SIGSTOP)."""
        tree = self._tree()
        try:
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
            yield
        finally:
            for process in tree:
                with suppress(psutil.NoSuchProcess):
                    process.resume()

    async def stop(self) -> None:
        """Have it end as a service manager does; what runs to an end by itself ends so.

        Raises:
            TrialError: it does not, or not well.
        """
        self._stopping = True
        if self.running and not self._ends:
            assert self._process is not None
            self._process.send_signal(signal.SIGTERM)
        if self._keeping is not None:
            try:
                await asyncio.wait_for(self._keeping, _STOP_S)
            except TimeoutError:
                self.end()
                raise TrialError(f"{self.name} did not stop; see {self.log}") from None
        if self._process is not None and self._process.returncode and not self._hit:
            raise TrialError(f"{self.name}: status {self._process.returncode}: {self._tail()}")

    def end(self) -> None:
        """Kill all of it, for good."""
        self._stopping = True
        if self._keeping is not None:
            self._keeping.cancel()
        self._tree()
        self._kill_rest()

    async def _keep(self) -> None:
        while not self._stopping:
            command = self._again if self.starts else self._command
            with self.log.open("ab") as output:
                self._process = await asyncio.create_subprocess_exec(
                    *command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=os.environ | _ENVIRONMENT,
                )
            self._known, self._hit = set(), False
            self.starts += 1
            status = await self._process.wait()
            self._kill_rest()
            if status == 0:
                self.finished += 1
            elif not self._hit:
                self.unasked.append(f"{self.name}: status {status}: {self._tail()[-300:]}")
            if not self._stopping:
                await asyncio.sleep(_AGAIN_S if status else _TIMER_S)

    def _tree(self) -> list[psutil.Process]:
        """Return its processes, and remember them: those whose parent is gone are not found again."""
        if not self.running:
            return []
        assert self._process is not None
        try:
            root = psutil.Process(self._process.pid)
            tree = [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []
        self._known |= set(tree)
        return tree

    def _kill_rest(self) -> None:
        for process in self._known:
            with suppress(psutil.NoSuchProcess):
                process.kill()

    def _tail(self) -> str:
        return self.log.read_bytes()[-1500:].decode(errors="replace")


def _role(process: psutil.Process) -> str:
    """Say what a process of a job is, by its command line; "" for none of those that matter."""
    try:
        words = process.cmdline()
    except psutil.Error:
        return ""
    text = " ".join(words)
    if "CoarseGrainedExecutorBackend" in text:
        return "executor"
    if "org.apache.spark.deploy.SparkSubmit" in words:
        return "jvm"
    if any(word.startswith("pyspark.") for word in words):
        return "worker"
    return "driver" if "backhaul-spark" in text and "java" not in words[0] else ""
