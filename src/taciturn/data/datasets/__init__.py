"""One file for each data set."""
