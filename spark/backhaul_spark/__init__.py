"""PySpark jobs: from the hub's JetStream streams into the fleet history."""
