"""A page on the local machine that shows runs, and what goes on in them."""
