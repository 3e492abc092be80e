"""Current values of the fleet: heads, conflicts, the tree, and the writes that people make.

Enter at `service` (requests) and `core` (points and words of vehicles). All but the services decide
without I/O; `outbox` holds what waits for DOWN. The merge is `backhaul_codec.state.merge`, the same
at both ends.
"""
