"""Files for vehicles and from vehicles: offered, asked for in pieces, and stored.

Enter at `service`. `object_store` reads and writes the bucket, `uploads` follows a file until it is
whole. Which slot a device shall hold is a head, and so in `sync`.
"""
