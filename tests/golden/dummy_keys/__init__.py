"""On PYTHONPATH, not imported: Python reads sitecustomize.py at each start."""
