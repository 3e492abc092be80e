"""All attacks, from the modules that enter them."""

from . import (  # noqa: F401 - for what they enter
    attacks_enrol,
    attacks_listen,
    attacks_login,
    attacks_protocol,
    attacks_publish,
    attacks_source,
)
from .attack import ATTACKS

__all__ = ["ATTACKS"]
