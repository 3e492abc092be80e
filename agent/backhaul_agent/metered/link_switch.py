"""Adds the leaf server's link to the hub and takes it away, while the server runs.

`leaf.conf` includes a small file in the one remote it has, and that file says whether the remote is
disabled. The agent writes it, whole or not at all, and has the server read its configuration again:
over the server's own system account, or by a signal. nats-server closes the connection of a remote
that becomes disabled and dials again when it is enabled (since 2.14).
"""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

from backhaul_agent.config import Config
from backhaul_agent.errors import LeafReloadError, LinkSwitchError, LoginError
from backhaul_agent.files import write_whole
from backhaul_agent.leaf.login import login_options
from backhaul_agent.leaf.reload import reload_leaf

_TEXT = """\
# Written by backhaul-agent: whether the link to the hub is there. Included by leaf.conf.
disabled: {disabled}
"""


class LinkSwitch:
    """Makes the leaf server have a link, or none."""

    def __init__(self, config: Config) -> None:
        self._link = config.link
        self._url = config.nats.url
        self.path = Path(config.link.file)

    async def set(self, on: bool) -> None:
        """Write the file and have the server read it; may be repeated.

        Raises:
            LinkSwitchError: with what an operator can do about it.
        """
        await asyncio.to_thread(self._write, _TEXT.format(disabled=str(not on).lower()))
        if self._link.pid_file:
            self._signal(Path(self._link.pid_file))
        else:
            await self._reload()

    def _write(self, text: str) -> None:
        try:
            if self.path.read_text(encoding="utf-8") == text:
                return
        except OSError:
            pass  # to be written anyhow, and that error says more
        try:
            write_whole(self.path, text.encode(), mode=0o644)  # the leaf server may be another user
        except OSError as error:
            raise LinkSwitchError(
                f"{self.path} cannot be written: {error.strerror}",
                hint="the agent's user needs the right to write in this directory, where leaf.conf is",
            ) from error

    def _signal(self, pid_file: Path) -> None:
        try:
            os.kill(int(pid_file.read_text(encoding="ascii")), signal.SIGHUP)
        except (OSError, ValueError) as error:
            raise LinkSwitchError(
                f"the leaf server named in {pid_file} cannot be told: {error}",
                hint="pid_file of leaf.conf and link.pid_file of agent.toml must be the same file,"
                " and the server run as the agent's user",
            ) from error

    async def _reload(self) -> None:
        login = self._login()
        try:
            await reload_leaf(self._url, login)
        except LeafReloadError as error:
            hint = "link.system_nkey of agent.toml must be the key of account SYS in apps.conf"
            if error.refused:
                hint = "nats-server -t -c leaf.conf says more"
            raise LinkSwitchError(str(error), hint=hint) from error

    def _login(self) -> dict[str, Any]:
        link = self._link
        try:
            return login_options(nkey=link.system_nkey)
        except LoginError as error:
            problem = f"link.system_nkey {error.path}: {error.problem}"
            raise LinkSwitchError(problem, hint=error.hint) from error
