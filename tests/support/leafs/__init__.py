"""Many vehicles' leaf links from few processes: a leaf link is a connection of an account, so one nats-server holds hundreds.

Enter at `farm.LeafFarm`: real nats-servers, each with an account, streams, durables and a remote of its own for every vehicle, by the
product's files. `stand_in` speaks in the place of their agents; `named_leafs` is the hub's control plane, told which link is whose, since
a server has one name and a vehicle's own would have another. `tcp_bytes` asks the kernel for the bytes of the hub's links.
"""
