"""hub.db: one SQLite file, its transactions, and its tables.

Enter at `store`. `migrations` holds the tables of every version; `turn` has writers take turns. The
rows themselves belong to the rooms that use them.
"""
