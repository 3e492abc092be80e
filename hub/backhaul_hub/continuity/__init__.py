"""The books of each lane: which messages the hub holds, and whether they are one history. Pure.

Enter at `lane_book`. `chain` proves one history by content, `repeats` tells what came twice from a
fork, `resend_policy` says what to ask for again, and `blocks` where in a stream messages stand.
Nothing here does I/O.
"""
