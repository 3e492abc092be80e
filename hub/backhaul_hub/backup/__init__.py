"""The hub as files: saved, checked, restored, or rebuilt from traces.

Enter at `backup`, `restore`, and `rebuild` (where hub.db is lost). `manifest` checks every name in
a backup before anything is written. Nothing here runs beside a control plane, but `backup` itself.
"""
