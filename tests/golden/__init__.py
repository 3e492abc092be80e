"""Files as they stand in the field, of each version that was ever written, and how they are read today."""
