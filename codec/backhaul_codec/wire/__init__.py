"""The wire format: envelopes, points, and frames as bytes (docs/wire-format.md). Pure.

Enter at `messages`. `envelope` is a message's place in its lane, `expansion` bounds what it may
come to, `compression` inflates it. Whatever stands in the field is read for ever.
"""
