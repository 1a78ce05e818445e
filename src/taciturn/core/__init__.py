"""Foundations without dependencies on the rest of the package: arrays, registries, durable storage, locks, signals."""
