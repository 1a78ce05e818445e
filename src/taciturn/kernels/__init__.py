"""Optional compiled C code for the two hot loops: passes over records, and seeded noise.

Everything works without it, more slowly. The plain numpy forms define the results: `objectives.passes.PlainPasses` and
numpy's random generator.
"""
