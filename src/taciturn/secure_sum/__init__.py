"""A secure sum: a server learns the sum of what sites send, and nothing else about a single site.

The rules are pure: state comes in, new state and the bytes to send are returned. Nothing here reads a file or opens a
connection. `taciturn.federation` runs the protocol; docs/explanation/secure-sum.md says what it promises.
"""
