"""The demonstration: a small fleet on one machine, a link that is cut, and the account of it."""
