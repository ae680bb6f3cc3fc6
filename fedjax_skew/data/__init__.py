"""Datasets, their division among clients, and augmentation.

``datasets`` loads datasets, ``partition`` divides a training set; neither imports JAX or TFDS.
"""
