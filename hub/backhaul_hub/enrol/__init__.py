"""Identities of vehicles: tokens, enrolment, rotation of keys, and revocation.

Enter at `service` (vehicles that ask), `add_device`, `rotate`, and `revoke` (operators). `rules`
decides without I/O. What an identity may do once it is in, `access` says.
"""
