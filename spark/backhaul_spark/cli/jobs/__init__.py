"""Subcommands that work: they write tables or states, raise alerts, or serve, most until they are stopped.

Enter at the module that bears the subcommand's name.
"""
