"""Local programs: their rights, and the connections through which the agent hears them.

Enter at `rights` (the rules) and `accounts_text` (the text of apps.conf); `doors` holds the
connections through which the agent hears programs, `floods` judges a program that floods. Nothing
here knows the ledger or the link to the hub.
"""
