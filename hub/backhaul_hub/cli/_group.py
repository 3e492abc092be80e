"""A group of commands one of which needs no name."""

from __future__ import annotations

from typing import Any

import click


class DefaultGroup(click.Group):
    """A group whose first argument may also be one of its default command's.

    Args:
        default: the command that is meant where none is named.
    """

    def __init__(self, *args: Any, default: str, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._default = default

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front where the first word is no command."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = [self._default, *args]
        return super().parse_args(ctx, args)
