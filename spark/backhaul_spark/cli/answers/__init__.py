"""Subcommands that answer a person out of the tables: as text, JSON, a picture, or a page.

Enter at the module that bears the subcommand's name.
"""
