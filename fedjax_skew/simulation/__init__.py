"""From a configuration to a problem and its compiled programs."""
