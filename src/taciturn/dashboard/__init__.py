"""The dashboard: a local web page that shows runs, and a monitoring page for long-running federation processes."""
