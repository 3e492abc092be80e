"""The errors of the hub.

HubError                    the base: message, hint (what to do about it)
├── ConfigError             hub.toml or the hub directory
├── KeyRefusedError         a seed is none, or damaged; it is never said
├── RegistryError           hub.db, or a device that is (or is not) in it
│   ├── DeposedError        another machine leads the hub, or may
│   ├── OlderRegistryError  hub.db is older than the accounts that the servers hold: older
│   ├── RegistryHeldError   another process has hub.db: holder
│   └── LostRegistryError   hub.db knows nothing where there were devices; its exit status is 4
├── NobodyAnswersError      no control plane answers
├── JetStreamError          the server refused a JetStream request: subject, code
├── ArtifactError           an artifact is not there, damaged, or cannot be stored
├── CertificateError        a certificate, its key or its authority cannot be used
├── BackupError             a backup cannot be taken, is damaged, or cannot be put back
├── WriteRefusedError       a write that cannot be done as asked
├── RightsError             a person asks for what is not theirs to see or do
├── StreamConflictError     a stream exists and differs where it must not: stream, differences
└── LimitsLoweredError      a stream's limits are to be lowered, which drops data: stream, limits
"""

from __future__ import annotations

from pathlib import Path

from backhaul_runtime.jetstream_calls import RefusedByServer


class HubError(Exception):
    """Base of every error that an operator of the hub may see."""

    exit_status = 1
    """Of the command line that ends with it."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class ConfigError(HubError):
    """A file of the hub directory is missing, unreadable, or holds a wrong value."""


class KeyRefusedError(HubError):
    """A text is no seed of a key, or of another kind of key, or damaged."""


class RegistryError(HubError):
    """A device is unknown, exists already, has no valid id; or hub.db is not usable."""


class OlderRegistryError(RegistryError):
    """hub.db is an older copy, or one beside the true one: its accounts are of the past."""

    def __init__(self, older: str) -> None:
        super().__init__(
            f"this hub.db is older than the accounts that the servers hold ({older})",
            hint="put the newest hub.db back; where there is none, stop the control plane, and:"
            " backhaul-hub restore --from-streams",
        )
        self.older = older


class RegistryHeldError(RegistryError):
    """Another process has hub.db: two that write it at once would miss each other's rows."""

    def __init__(self, path: Path, holder: str) -> None:
        super().__init__(
            f"{path} is in use: {holder}", hint="wait for it to end, or end it, then again"
        )
        self.holder = holder


class DeposedError(RegistryError):
    """Another machine leads the hub, or may: the control plane of this one writes nothing more."""


class LostRegistryError(RegistryError):
    """hub.db knows none of the devices that there were: it was lost, or is another hub's."""

    exit_status = 4


class NobodyAnswersError(HubError):
    """No control plane answers: none runs, or no server is there through which to ask."""


class JetStreamError(HubError, RefusedByServer):
    """The server answered a JetStream API request with an error."""

    def __init__(self, subject: str, err_code: int, description: str, code: int = 0) -> None:
        super().__init__(f"{subject}: {description} (error {err_code})")
        self.code = code
        self.subject = subject
        self.err_code = err_code
        self.description = description


class ArtifactError(HubError):
    """An artifact is not there, is damaged, or cannot be stored."""


class CertificateError(HubError):
    """A certificate, its key or its authority is missing or invalid."""


class BackupError(HubError):
    """A backup, restore or migration cannot go on; all is as before, or the error says so."""


class WriteRefusedError(HubError):
    """A point, edge or node cannot be written as asked; nothing was."""


class RightsError(HubError):
    """A person asks for more than the rights given; or somebody who is no person does."""


class StreamConflictError(HubError):
    """An existing stream cannot be brought in line without losing data."""

    def __init__(self, stream: str, differences: list[str]) -> None:
        super().__init__(
            "\n  ".join([f"stream {stream} exists, and cannot be changed in place:", *differences]),
            hint="move it aside or change hub.toml; the hub never deletes a stream",
        )
        self.stream = stream
        self.differences = differences


class LimitsLoweredError(HubError):
    """A stream's limits in hub.toml are lower than they are: applied, they drop messages."""

    def __init__(self, stream: str, limits: list[str]) -> None:
        super().__init__(
            f"stream {stream} would drop what is beyond its new limits: {'; '.join(limits)}",
            hint="if that is meant, start once with: backhaul-hub up --lower-limits",
        )
        self.stream = stream
        self.limits = limits
