"""Erasing a vehicle, or the name of a person, wherever the hub keeps something of it (ADR 58).

Enter at `eraser`, which the control plane runs at its start, before anything is read; `plan` tells what it would do.
Nothing here knows the control plane: in memory there is nothing of a device by then.
"""
