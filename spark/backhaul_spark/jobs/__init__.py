"""Work on all tables: retention, small files made large, and how far behind each job is.

Enter at `maintain` or `progress`.
"""
