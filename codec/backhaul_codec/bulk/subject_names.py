"""Read the subjects of many messages, each leaf subject parsed once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from backhaul_codec.errors import CodecError
from backhaul_codec.points import Kind
from backhaul_codec.subjects import DEVICE_ID, IMPORT, SubjectError, parse_leaf, parse_uplink


class SubjectNames(NamedTuple):
    """Hold a message's names by its subject; `kind` None where there was no subject.

    `parent` of a frame is the upper end of its edge, "" for a node's frame; `node` of an edge's
    single point says both ends. `silent`: no point of it is a row.
    """

    kind: Kind | None
    node: str | None
    type: str
    key: str
    parent: str = ""
    silent: bool = False


NO_NAMES = SubjectNames(None, None, "", "")


def names_of(
    count: int, subjects: Sequence[str] | None, errors: dict[int, CodecError]
) -> list[SubjectNames | None]:
    """Return the names of each subject; None of an invalid one, and its error in `errors`."""
    if subjects is None:
        return [NO_NAMES] * count
    known: dict[str, SubjectNames] = {}
    found: list[SubjectNames | None] = []
    for index, subject in enumerate(subjects):
        try:
            found.append(_names(subject, known))
        except SubjectError as error:
            errors[index] = CodecError(str(error), "subject")
            found.append(None)
    return found


def _names(subject: str, known: dict[str, SubjectNames]) -> SubjectNames:
    """Return the names of a subject, each leaf subject parsed once for all devices."""
    leaf_subject = subject
    if subject.startswith(("up.", f"{IMPORT}.")):
        device, _, leaf_subject = subject.partition(".")[2].partition(".")
        if not DEVICE_ID.match(device):
            parse_uplink(subject)  # says what is wrong
    names = known.get(leaf_subject)
    if names is None:
        names = known[leaf_subject] = _parse(leaf_subject)
    return names


def _parse(leaf_subject: str) -> SubjectNames:
    uplink = parse_leaf(leaf_subject)
    if uplink.frame:
        return SubjectNames(Kind.FRAME, uplink.node, "", "", uplink.parent or "")
    if uplink.body_kind is not Kind.POINT:
        return SubjectNames(uplink.body_kind, None, "", "", silent=uplink.system)
    node = uplink.node or ""
    if uplink.parent is not None:
        node = edge_name(uplink.parent, node)
    return SubjectNames(Kind.POINT, node, uplink.type or "", uplink.key or "", silent=uplink.system)


def edge_name(parent: str, node: str) -> str:
    """Return the node of an edge's points in rows: `<parent>><node>`."""
    return f"{parent}>{node}"
