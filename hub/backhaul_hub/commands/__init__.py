"""One file a subcommand of `backhaul-hub`."""
