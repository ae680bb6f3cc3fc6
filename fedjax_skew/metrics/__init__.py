"""What a run is judged by: accuracy and friends, skew, the deviation bound, curves."""
