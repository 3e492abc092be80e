"""The one task that writes the ledger: it groups waiting points, stamps, frames, and commits them.

Enter at `writer`, which `commit_loop` runs; `participant` says how a part of the agent takes part in a commit. `framer`,
`bundle_packer`, `epochs`, `heads` and `marks` decide without I/O; `eviction` keeps the ledger within
its limits. Nothing here knows the leaf server, or how a message reaches the hub.
"""
