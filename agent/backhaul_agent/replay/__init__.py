"""Recordings fed to an agent as if programs published them: `backhaul-agent replay`.

Enter at `run`; `feed` sends rows through `client` and goes on where the agent has got to.
Recordings themselves are read by `backhaul_codec.recordings`, which the hub's import shares.
"""
