"""Recordings as points: read a file, map its columns, feed a running agent. A desk tool."""
