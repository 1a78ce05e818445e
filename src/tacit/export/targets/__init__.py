"""One file for each program to export for."""
