"""Workloads of the benchmark and the peers they are compared with."""
