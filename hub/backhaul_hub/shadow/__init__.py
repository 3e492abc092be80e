"""Shadows: an operator's wishes for a device, its reports, and whether each wish is fulfilled.

Enter at `service`. `core`, `delta`, `document`, and `state` decide without I/O; `bucket` is the
command line's side.
"""
