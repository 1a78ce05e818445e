"""The built-in data sets, one module each."""
