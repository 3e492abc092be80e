"""The one task that writes the ledger: it groups what waits, stamps it, frames it, and commits it.

Enter at `writer`. `framer`, `epochs`, `heads`, `marks`, and `write_clock` decide without I/O;
`eviction` keeps the ledger within its limits. Nothing here knows the leaf server, or how a message
reaches the hub.
"""
