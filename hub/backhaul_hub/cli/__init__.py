"""The command line `backhaul-hub`: one module a subcommand.

Enter at `main`. Modules that begin with `_` hold what several subcommands share; `server`, `fleet`,
and `values` hold the subcommands. A subcommand asks a running control plane, or opens the hub's
directory; no other room imports this one.
"""
