"""The federated round as pure functions of arrays, independent of the configuration."""
