"""The federated round as pure functions over arrays; nothing here reads a configuration."""
