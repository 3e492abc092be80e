"""Where the twin job's words go: alerts and commands to the hub, alerts and twins to tables."""
