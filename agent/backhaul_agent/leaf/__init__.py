"""The leaf server beside the agent: its configuration, connection, streams, and link.

Enter at `connection` (made again for ever), `streams` (what the agent keeps there), and
`config_text` (leaf.conf). `link_state` says whether the server reaches the hub. Nothing here knows
the ledger or what a message holds.
"""
