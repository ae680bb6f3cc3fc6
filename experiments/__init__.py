"""Command-line binaries that train, reproduce, sweep and measure."""
