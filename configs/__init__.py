"""Configuration files: one folder a paper, one file a table."""
