"""FedLC's recipe and tables."""
