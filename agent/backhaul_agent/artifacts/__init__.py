"""Files between vehicle and hub: fetched and sent in pieces, checked whole, resumed after a cut.

Enter at `manager` (one transfer in each direction) and `service` (requests of local programs).
`jobs` and `transfer_state` decide without I/O; `store`, `room`, and `partial_file` own the
directory. Nothing here reads lanes or points.
"""
