"""Subcommands about vehicles and their identities: let in, divided into nodes, and shut out.

Enter at the module that bears the subcommand's name.
"""
