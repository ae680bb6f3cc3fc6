"""Datasets, their partition among clients, and augmentation.

``dataset`` defines the form of a dataset, ``catalog`` lists the known ones, ``datasets`` loads them
by name, and ``partition`` divides a training set. None of these imports JAX or TFDS.
"""
