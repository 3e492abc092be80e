"""Logins at the hub's servers, and the rights of each: accounts, keys, and revocations.

Enter at `service` (accounts pushed by the one control plane) and `rules` (which account may what).
`revocation_log` is signed and append-only; `generations` keeps an older control plane from pushing
backwards. Nothing here knows what devices send.
"""
