"""Runs that are stored in a directory: writing, resuming and reading them."""
