"""Compiled C for what takes the time: the pass over records and the noise. Everything works without it, more slowly.

Each function here has a plain form in numpy, which defines what it means: `PlainPasses` and numpy's own generator.
"""
