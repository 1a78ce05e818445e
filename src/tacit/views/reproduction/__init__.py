"""The paper's figures and its numbers beside ours, made from the summaries of a reproduction alone."""
