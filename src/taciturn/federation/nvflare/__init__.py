"""The engine: NVFlare's cell network, which carries sealed bytes between a hub and the sites' relays.

Only `hub` and `relay` import NVFlare. They are programs of their own, run confined, and talk to Taciturn over a `Link`.
Nothing of NVFlare above its cells is used: there are no jobs, no administrators, no executors.
"""
