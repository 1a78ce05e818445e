"""Foundations that need nothing of the rest: arrays, component registry, durable storage, locks, signals."""
