"""The paper's theorems as code: their constants, bounds and assumptions, and measurements of Algorithm 1."""
