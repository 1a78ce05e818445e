"""The engine: NVFlare's cell network, which carries sealed bytes between a hub and the sites.

Only `carrier` and `cell` import NVFlare. The carrier runs as a separate, confined program and talks to Taciturn over a
`Link`. Nothing of NVFlare above its cells is used: there are no jobs, administrators or executors.
"""
