"""The PySpark data source `jetstream`: streams by sequence range, in batches and as a stream.

Enter at `jetstream_source`; `weight` cuts a batch by what its messages come to. What an offset
means, `nats.offsets` decides.
"""
