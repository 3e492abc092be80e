"""Logins at the hub's servers, and the rights of each: accounts, keys, and revocations.

Enter at `push` (accounts as the one who has hub.db tells them to servers) and `rules` (which account may what).
`signed_log` is append-only; `generations` keeps an older control plane from pushing
backwards. Nothing here knows what devices send.
"""
