"""Metrics of runs: accuracies, skew, FedLC's deviation bound and training curves."""
