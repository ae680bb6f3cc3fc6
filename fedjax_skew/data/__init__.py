"""Datasets, their partition among clients, and augmentation.

``dataset`` defines the format of a dataset, ``catalog`` lists the registered ones, ``datasets``
loads them by name, and ``partition`` divides a training set. None of these imports JAX or TFDS.
"""
