"""Rules over the signals of a fleet: what raises an alert, and what a twin knows of its device."""
