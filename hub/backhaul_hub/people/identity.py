"""A person's name at the hub, and the subjects with it. Pure.

A person's rights stand in subjects, which the server checks: it lets a person publish on
`ask.<may>.<group>.<name>.>` alone, and hear `up.<group>.>` and `inbox.<name>.>` alone. So what reaches
the control plane says truly who asks, with which right, and below which group. What is below that
group now, the control plane sees in the tree (people/scope.py): a tree that changes takes effect at once,
and nothing is issued anew.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from backhaul_codec.subjects import DEVICE_ID, SubjectError, decode_token, encode_token
from backhaul_hub.access.logins import PAGE
from backhaul_hub.errors import RightsError
from backhaul_hub.nats.jwt import Rights
from backhaul_hub.shadow.core import WHO as SHADOW_WHO

QUESTIONS = "ask.*.*.*.*"
"""`ask.<may>.<group>.<name>.<service>`."""
SUBS_MAX = 200
PAYLOAD_BYTES_MAX = 1 << 20


class May(StrEnum):
    """The rights of a person; each includes those before it."""

    READ = "read"
    WRITE = "write"
    COMMAND = "command"

    def covers(self, needed: May) -> bool:
        """Tell whether this is enough where `needed` is."""
        levels = list(May)
        return levels.index(self) >= levels.index(needed)


class Person(NamedTuple):
    """Somebody who works with one part of the tree."""

    name: str
    group: str
    """The address of a group or a device; `fleet` is everything."""
    may: May

    @property
    def questions(self) -> str:
        """Return where this person, and nobody else, may publish."""
        return f"{self.ask('')}>"

    @property
    def live(self) -> str:
        """Return the subject on which this person hears changes in the subtree."""
        return f"up.{encode_token(self.group)}.>"

    @property
    def inbox(self) -> str:
        """Return the prefix of this person's inboxes; answers go nowhere else."""
        return f"inbox.{self.name}"

    @property
    def rights(self) -> Rights:
        """Return the server's permissions for this person."""
        return Rights(
            publish=(self.questions,),
            subscribe=(self.live, f"{self.inbox}.>"),
            subs_max=SUBS_MAX,
            payload_bytes_max=PAYLOAD_BYTES_MAX,
            connection_types=("STANDARD", "WEBSOCKET"),
        )

    def ask(self, service: str) -> str:
        """Return the subject of a question."""
        return f"ask.{self.may}.{encode_token(self.group)}.{self.name}.{service}"


def person_of(subject: str) -> tuple[Person, str]:
    """Read the subject of a question: the asker, and the service. Raises: RightsError."""
    try:
        ask, may, group, name, service = subject.split(".")
        if ask == "ask" and DEVICE_ID.match(name):
            return Person(name, decode_token(group), May(may)), service
    except (ValueError, SubjectError):
        pass
    raise RightsError(f"{subject[:200]!r} is no question of a person")


def require_person_name(name: str) -> str:
    """Return a name that a person may have: it stands in subjects and in origins, `hub:<name>`.

    Raises:
        RightsError: it is none.
    """
    if not DEVICE_ID.match(name):
        raise RightsError(
            f"{name!r} is no name of a user",
            hint="letters, digits, _ and -, at most 63, and a letter or digit first",
        )
    if name == PAGE:
        raise RightsError(f"{name} is who serves the page: choose another name")
    if name == SHADOW_WHO:
        raise RightsError(f"{name} stands for nobody in particular: choose another name")
    return name
