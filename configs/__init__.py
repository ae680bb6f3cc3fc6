"""Configuration files: one module per paper, and one JSON file with its printed tables."""
