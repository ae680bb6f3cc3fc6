"""Experiment binaries."""
