"""Acts of command lines on hub.db: carried out by the control plane that leads, or by themselves where none does.

Either way it is the same act: `Acts` over an open hub.db. In account HUB it is asked as `hub.<service>`; nobody else
reaches that. An answer may hold a secret: a token, a vehicle's or a person's login. None is logged.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from backhaul_codec.assurance.completeness import HOUR_NS, hours_between
from backhaul_codec.assurance.completeness_text import line, to_json
from backhaul_hub import questions as q
from backhaul_hub.access.identity_documents import Documents
from backhaul_hub.access.keys import HubKeys
from backhaul_hub.audit import rows as audit_rows
from backhaul_hub.config import load
from backhaul_hub.control.coming_notices import coming_notices
from backhaul_hub.control.erasing import ErasureActs
from backhaul_hub.db.devices import ids_after, known_ids
from backhaul_hub.db.store import Registry
from backhaul_hub.enrol import rows as enrolment_rows
from backhaul_hub.enrol.add_device import (
    AddedDevice,
    ChangedNodes,
    DeviceSettings,
    change_nodes,
    create_device,
)
from backhaul_hub.enrol.revoke import revoke_device
from backhaul_hub.enrol.rotate import begin_rotation
from backhaul_hub.enrol.tokens import described, make_token
from backhaul_hub.errors import HubError, RegistryError
from backhaul_hub.imports.book import (
    ImportBegin,
    ImportKept,
    ImportLook,
    ImportStart,
    RegistryBook,
)
from backhaul_hub.lane_records.completeness import hour_reports_of
from backhaul_hub.people.credentials import add_person, in_tree, remove_person, tree_above
from backhaul_hub.people.identity import May, Person
from backhaul_hub.people.page_logins import make_link
from backhaul_hub.people.rows import known_people
from backhaul_hub.twin.event_answers import HOURS_MAX, standing_of
from backhaul_runtime.clock import Clock

log = structlog.get_logger(__name__)

HERE = "here"
"""The service by which who asks learns that answers come."""
_PAGE = 500
_HOURS = 30_000
"""Hours of all devices in one answer: the control plane judges so many in a fraction of a second."""

Learn = Callable[[bool], Awaitable[str]]
"""Has servers and control plane know hub.db, servers with True their own files as well.

Returns why they could not; empty: all did.
"""


class Act(NamedTuple):
    """One service of `Acts`: its question and its answer."""

    service: str
    question: type[Any]
    answer: Callable[[Any], Awaitable[dict[str, Any]]]


@dataclass(eq=False)
class Acts:
    """All acts on one open hub.db.

    Args:
        learn: see `Learn`; it is awaited after each act that servers or control plane have to know of.
        erasures: the acts on these.
    """

    _directory: Path
    _keys: HubKeys
    _registry: Registry
    _clock: Clock
    _learn: Learn
    _erasures: ErasureActs

    def table(self) -> Iterable[Act]:
        """Return all services."""
        return (
            Act(HERE, q.Nothing, self.here),
            Act("enrol", q.Enrol, self.enrol),
            Act("add-device", q.AddDevice, self.add_device),
            Act("revoke", q.OneDevice, self.revoke),
            Act("rotate", q.Rotate, self.rotate),
            Act("erase-plan", q.Erase, self._erasures.plan),
            Act("erase", q.Erase, self._erasures.erase),
            Act("erasures", q.Nothing, self._erasures.erasures),
            Act("audit-names", q.Nothing, self.audit_names),
            Act("tables-erased", q.OneDevice, self._erasures.tables_erased),
            Act("tokens", q.Tokens, self.tokens),
            Act("user-add", q.UserAdd, self.user_add),
            Act("user-link", q.UserLink, self.user_link),
            Act("user-rm", q.UserRemove, self.user_rm),
            Act("users", q.Users, self.users),
            Act("reload", q.Reload, self.reload),
            Act("completeness", q.Completeness, self.completeness),
            Act("event-hours", q.EventHours, self.event_hours),
            Act("dry-run", q.DryRun, self.dry_run),
            Act("import-start", ImportStart, self.import_start),
            Act("import-look", ImportLook, self.import_look),
            Act("import-begin", ImportBegin, self.import_begin),
            Act("import-kept", ImportKept, self.import_kept),
        )

    async def here(self, _: q.Nothing) -> dict[str, Any]:
        """Return nothing: an asker who hears that hears the next answer, too."""
        return {}

    async def enrol(self, asked: q.Enrol) -> dict[str, Any]:
        """Make a token; the answer holds it, and nothing else ever does."""
        settings = DeviceSettings(asked.link_kbit_s, asked.link_mode, tuple(asked.nodes))
        made = await make_token(
            *(self._registry, self._documents(), self._keys, self._clock),
            *(asked.device, settings, asked.expires_s),
        )
        log.info("token_made", device=asked.device, token=made.enrolment.id)
        return {
            "device": made.enrolment.device,
            "token": made.word,
            "id": made.enrolment.id,
            "expires_ns": made.enrolment.expires_ns,
        }

    async def add_device(self, asked: q.AddDevice) -> dict[str, Any]:
        """Enrol a device, or change its nodes; the answer holds its document, with the key in it."""
        documents, device = self._documents(), asked.device
        done: AddedDevice | ChangedNodes
        link = {"link_kbit_s": asked.link_kbit_s, "link_mode": asked.link_mode}
        given: dict[str, Any] = {name: said for name, said in link.items() if said is not None}
        if asked.nodes is not None and await known_ids(self._registry, [device]):
            if given:
                raise RegistryError(
                    f"device {device} exists already and keeps its {', '.join(given)}",
                    hint="say --per-node and --node, or --per-device, and nothing else",
                )
            done = await change_nodes(self._registry, documents, self._clock, device, asked.nodes)
        else:
            settings = DeviceSettings(**given, nodes=tuple(asked.nodes or ()))
            done = await create_device(self._registry, documents, self._clock, device, settings)
        is_new = isinstance(done, AddedDevice)
        log.info("device_added" if is_new else "nodes_changed", device=device)
        return {
            "device": device,
            "added": is_new,
            "document": done.identity.read_text(),
            "nodes": done.device.nodes,
            "leaving": done.device.leaving,
            "dropped": () if isinstance(done, AddedDevice) else done.dropped,
            "problem": await self._learn(False) if asked.told else "",
        }

    async def revoke(self, asked: q.OneDevice) -> dict[str, Any]:
        """Shut a device out for ever."""
        revoked = await revoke_device(self._registry, self._documents(), self._clock, asked.device)
        log.info("revoked", **asdict(revoked))
        return asdict(revoked) | {"problem": await self._learn(False)}

    async def rotate(self, asked: q.Rotate) -> dict[str, Any]:
        """Ask a device for another key."""
        rotation, begun = await begin_rotation(
            self._registry, self._clock, asked.device, again=asked.again
        )
        log.info("rotation_asked", device=asked.device, rotation=rotation.id, begun=begun)
        said = {"rotation": asdict(rotation), "begun": begun}
        return said | {"problem": await self._learn(False)}

    async def tokens(self, asked: q.Tokens) -> dict[str, Any]:
        """Return a page of tokens, without their secrets."""
        now_ns = self._clock.now_ns()
        if asked.device is None:
            found = await enrolment_rows.of_devices_after(self._registry, asked.after, _PAGE)
        else:
            found = await enrolment_rows.of_device(self._registry, asked.device)
        shown = [each for each in found if asked.every or each.state(now_ns) == "open"]
        whole = len({each.device for each in found}) < _PAGE
        return {
            "tokens": [described(each, now_ns) for each in shown],
            "next": None if whole or asked.device is not None else found[-1].device,
        }

    async def user_add(self, asked: q.UserAdd) -> dict[str, Any]:
        """Give somebody rights; the answer holds the credentials, and nothing else ever does."""
        person = Person(asked.name, asked.group, May(asked.may))
        login = await add_person(self._registry, self._keys, self._clock, person)
        log.info("person_added", person=asked.name, group=asked.group, may=asked.may)
        return person._asdict() | {"credentials": login.text()}

    async def user_link(self, asked: q.UserLink) -> dict[str, Any]:
        """Make a link that logs a browser in, once; the answer holds its token, hub.db a hash of that."""
        token = await make_link(self._registry, self._clock, asked.name, asked.for_s)
        log.info("link_made", person=asked.name)
        return {"token": token}

    async def user_rm(self, asked: q.UserRemove) -> dict[str, Any]:
        """Withdraw somebody's credentials, for ever."""
        await remove_person(self._registry, self._clock, asked.name)
        log.info("person_removed", person=asked.name)
        return {"problem": await self._learn(False)}

    async def users(self, asked: q.Users) -> dict[str, Any]:
        """Return a page of those who have credentials, and whether the group of each is in the tree."""
        tree = await tree_above(self._registry)
        known = (await known_people(self._registry)).items()
        page = [each for name, each in known if name > asked.after][: _PAGE + 1]
        found = [
            each.person._asdict()
            | {"public_key": each.public_key, "added_ns": each.added_ns}
            | {"in_tree": in_tree(tree, each.person.group)}
            for each in page[:_PAGE]
        ]
        return {"users": found, "next": found[-1]["name"] if len(page) > _PAGE else None}

    async def reload(self, asked: q.Reload) -> dict[str, Any]:
        """Have servers and control plane know all devices."""
        return {"problem": await self._learn(asked.files)}

    async def audit_names(self, _: q.Nothing) -> dict[str, Any]:
        """Return whose the pseudonyms of the audit log are, and the last message of it that is known to be stored."""
        seq, digest = await audit_rows.head(self._registry)
        return {"names": await audit_rows.names(self._registry), "seq": seq, "digest": digest}

    async def completeness(self, asked: q.Completeness) -> dict[str, Any]:
        """Return the reports on some hours of a device, each also as a line for people."""
        hours = hours_between(asked.from_ns, asked.to_ns)
        if len(hours) > HOURS_MAX:
            raise HubError(f"{len(hours)} hours: {HOURS_MAX} at most")
        found = await hour_reports_of(self._registry, asked.device, hours)
        return {"hours": [to_json(each) for each in found], "lines": [*map(line, found)]}

    async def event_hours(self, asked: q.EventHours) -> dict[str, Any]:
        """Return in which hours events of a page of devices may be missing."""
        hours = hours_between(asked.from_ns // HOUR_NS * HOUR_NS, asked.to_ns)
        if len(hours) > HOURS_MAX:
            raise HubError(f"since {len(hours)} hours ago: {HOURS_MAX} at most")
        count = max(1, _HOURS // max(1, len(hours)))
        if asked.device is None:
            page = await ids_after(self._registry, asked.after, count)
        else:
            page = [asked.device]
        found = {each: await standing_of(self._registry, each, hours) for each in page}
        whole = asked.device is not None or len(page) < count
        return {"hours": found, "next": None if whole else page[-1]}

    async def dry_run(self, asked: q.DryRun) -> dict[str, Any]:
        """Return a page of the notices to come, by hub.toml as it is now."""
        settings = load(self._directory).alerts
        now_ns = self._clock.now_ns()
        found, unknown = await coming_notices(self._registry, settings, asked, now_ns)
        page = found[asked.skip : asked.skip + _PAGE]
        following = asked.skip + _PAGE if len(found) > asked.skip + _PAGE else None
        return {"alerts": [each.to_json() for each in page], "unknown": unknown, "next": following}

    async def import_start(self, asked: ImportStart) -> dict[str, Any]:
        """Return which devices the hub does not know, and how far the stream of imports went at least."""
        known = await known_ids(self._registry, asked.devices)
        unknown = [device for device in asked.devices if device not in known]
        return {"unknown": unknown, "stream": await RegistryBook(self._registry).stream()}

    async def import_look(self, asked: ImportLook) -> dict[str, Any]:
        """Return how far a recording is kept."""
        found = await RegistryBook(self._registry).source(asked.source)
        return {"source": None if found is None else asdict(found)}

    async def import_begin(self, asked: ImportBegin) -> dict[str, Any]:
        """Note rows that are to be published."""
        return {"epoch": await RegistryBook(self._registry).begin(asked.source, asked.stretch)}

    async def import_kept(self, asked: ImportKept) -> dict[str, Any]:
        """Note rows that are published."""
        book = RegistryBook(self._registry)
        await book.kept(asked.source, asked.hours, asked.created, asked.seq)
        return {}

    def _documents(self) -> Documents:
        """Return the maker of documents, by hub.toml as it is now. Raises: ConfigError."""
        return Documents(self._directory, load(self._directory), self._keys)
