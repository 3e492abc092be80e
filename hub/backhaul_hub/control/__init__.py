"""The control plane: the one process that reads UP, keeps the twins, and answers people.

Enter at `control_plane`, which has the list of its parts: each is a `subsystem`, and stands on
`ground`. `endpoints` is the table of all services that are asked by request. Other rooms are told
what they need: none imports this one but `cli` and `migrate`.
"""
