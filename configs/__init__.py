"""Configuration files: one module per paper, and the tables that it prints as JSON."""
