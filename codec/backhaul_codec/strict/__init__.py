"""JSON and TOML read strictly: no key twice, no number changed, no depth without end. Pure.

Enter at `json` and `toml`.
"""
