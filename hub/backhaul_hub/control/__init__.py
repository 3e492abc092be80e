"""The control plane: the one process that reads UP, keeps the twins, and answers people.

Enter at `control_plane`, which builds every service and runs them. `single_instance` keeps a second
one out, `found` is what it found at its start. Other rooms are told what they need: none imports
this one but `cli` and `migrate`.
"""
