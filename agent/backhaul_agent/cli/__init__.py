"""The command line `backhaul-agent`: one module a subcommand.

Enter at `main`, which finds a subcommand and loads its module; `vehicle` and `values` hold them.
`asking` and `options` hold what several subcommands share. A subcommand asks a running agent through `client`, or reads files; no other room
imports this one.
"""
