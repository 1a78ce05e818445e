"""The command line: commands that call the functions of the Python package and print what they return."""
