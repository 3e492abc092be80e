"""The part of backhaul that runs on the vehicle; start reading at `cli.main`."""
