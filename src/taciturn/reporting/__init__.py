"""Reports, tables and figures, from run folders alone."""
