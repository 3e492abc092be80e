"""Questions about a whole fleet, each a text in SQL that Spark and DuckDB answer alike, over views of the tables.

Enter at `ask`; `catalogue` reads the texts in `sql/`, `views` makes what they read. Must not know how
tables are written. What is pure here knows no tables: `catalogue`, `views`.
"""
