"""The time: an estimate of the hub's clock, and of how good it is.

Enter at `hub_clock`. `estimator` compares clocks, `step` decides whether to believe a hub whose
clock jumped. All of it is pure: `time_sync` asks the hub.
"""
