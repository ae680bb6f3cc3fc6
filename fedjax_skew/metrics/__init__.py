"""What a run is judged by: accuracy and friends, skew, drift, the deviation bound, curves."""
