"""The paper's theorems as code: their constants, bounds and assumptions, and what Algorithm 1 does under them."""
