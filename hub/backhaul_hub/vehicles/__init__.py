"""Vehicles beside their lanes: their reports, and whether two machines use one identity.

Enter at `keeper`. `core`, `identities`, and `turns` decide without I/O; `one_machine` answers an
operator.
"""
