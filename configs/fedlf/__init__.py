"""FedLF's recipe and tables."""
