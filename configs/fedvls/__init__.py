"""FedVLS's recipe and tables."""
