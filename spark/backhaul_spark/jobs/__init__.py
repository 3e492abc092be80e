"""Work on all tables: retention, and small files made large.

Enter at `maintain`.
"""
