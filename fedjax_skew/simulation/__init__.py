"""Building a problem from a configuration, compiling its programs and running them."""
