"""The subcommands of `backhaul-agent`; each module has one click command named `command`."""
