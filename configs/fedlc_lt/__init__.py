"""FedLC-LT's recipe and tables."""
