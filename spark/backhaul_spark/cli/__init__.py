"""The command line `backhaul-spark`: one module a subcommand.

Enter at `main`. Modules that begin with `_` hold what several subcommands share; `jobs` and
`answers` hold the subcommands. No other room imports this one.
"""
