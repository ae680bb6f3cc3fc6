"""Federated learning under label skew, vectorised in JAX.

Nothing is imported here on purpose: ``import fedjax_skew.losses`` must stay light.
"""

__version__ = "0.1.0"
