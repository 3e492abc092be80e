"""Recordings (CSV, Parquet, JSON lines) as rows of points, read in bounded memory.

Enter at `readers` and `mapping`. `times` finds the stamp of a row, `progress` says how far a
reading is. The agent's replay and the hub's import share this room.
"""
