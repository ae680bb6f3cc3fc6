"""A run and its directory: what is written, when, and how it is read again."""
