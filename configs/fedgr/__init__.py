"""FedGR's recipe and tables."""
