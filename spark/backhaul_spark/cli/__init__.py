"""The command line `backhaul-spark`: one module a subcommand.

Enter at `main`. Modules that begin with `_` hold what several subcommands share. No other room
imports this one.
"""
