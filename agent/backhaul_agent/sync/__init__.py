"""Values at both ends: config writes, heads, and how vehicle and hub come to hold the same.

Enter at `service` (local programs) and `on_link_up` (what the hub is told first). `writes`,
`digests`, `restamp`, and `newest_values` decide without I/O. The merge itself is
`backhaul_codec.state.merge`, the same at both ends.
"""
