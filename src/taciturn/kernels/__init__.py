"""Optional compiled C code for the hot loops: passes over records, seeded noise, and exact discrete noise.

Everything works without it, more slowly. The plain numpy forms define the results: `objectives.passes.PlainPasses`,
numpy's random generator and `privacy.discrete`.
"""
