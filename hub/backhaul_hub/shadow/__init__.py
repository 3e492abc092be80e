"""Shadows: what operators desire of a device, what it reports, and whether the wish is fulfilled.

Enter at `service`. `core`, `delta`, `document`, and `state` decide without I/O; `bucket` is the
command line's side.
"""
