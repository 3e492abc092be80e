"""The way to the hub: from the ledger into the OUT streams, until the hub confirms each message.

Enter at `lane`; `lane_rows` reads its rows and judges them, `lane_epoch` says which epoch's turn it
is. `appender`, `epoch_order`, `resend`, `link_window`, and `reconcile` decide without I/O;
`confirmations` believes a watermark only for the ledger's own messages; `adoption` takes back
what OUT holds and the ledger does not know. Nothing here knows what a point says.
"""
