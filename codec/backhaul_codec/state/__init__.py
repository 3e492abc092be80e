"""Values and how they merge: the newest wins, alike at both ends and in the tables. Pure.

Enter at `merge`. `tree` holds the rules of the tree, `point_text` and `json_values` how people
write a value. Nothing here knows bytes.
"""
