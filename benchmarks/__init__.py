"""Measurements of the parts beside what they are compared with. See docs/benchmarks.md."""
