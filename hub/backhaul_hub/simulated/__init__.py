"""A simulated fleet: what its vehicles' sources would write, and the test hub that takes it."""
