"""The workloads of the benchmark, and the simulators that they are compared with."""
