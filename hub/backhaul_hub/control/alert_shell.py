"""Alerts within the control plane: fed by health, routed by the tree, told along it."""

from __future__ import annotations

import random
from collections.abc import Callable

from backhaul_hub.alerts.alert import AlertRecord
from backhaul_hub.alerts.plan import places_of
from backhaul_hub.alerts.service import AlertService, HealthLook
from backhaul_hub.broadcast.events import told_alert
from backhaul_hub.control.ground import Ground
from backhaul_hub.control.subsystem import Subsystem, Tasks
from backhaul_hub.control.sync_shell import SyncShell
from backhaul_hub.device import FLEET


class AlertShell(Subsystem):
    """Everything around one `AlertService`.

    Args:
        health: returns the findings of the last look.
    """

    def __init__(self, ground: Ground, sync: SyncShell, health: Callable[[], HealthLook]) -> None:
        self._ground = ground
        self._sync = sync
        config = ground.config
        self.service = AlertService(
            *(config.alerts, ground.directory, config.twin.env, ground.clock),
            is_place=lambda place: sync.core.tree.attached(place),
            places=lambda device: places_of(device, sync.core.tree.ancestors),
            health=health,
            tell=self._tell,
            chance=random.random,
        )

    async def start(self) -> None:
        """Read hub.db; the tree is known by now."""
        ground = self._ground
        await self.service.start(ground.client, ground.api, ground.registry)

    def tasks(self) -> Tasks:
        """Return the looking, and the telling of people."""
        return self.service.tasks()

    def _tell(self, alert: AlertRecord) -> None:
        ancestors = self._sync.ancestors(alert.key.device or FLEET)
        self._sync.tell_live([told_alert(alert, ancestors)])
