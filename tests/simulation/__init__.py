"""A seeded simulation of a vehicle and its hub on their pure cores. See docs/simulation.md."""
