"""Rules that watch the fleet as it speaks: states, alerts, and how both are computed again.

Enter at `engine` and `actor`; each rule stands in `catalog`. A rule sees arrays and its own state,
and no table.
"""
