"""NVFlare carries the messages: identities and mutual TLS, processes, jobs. Nothing a study needs is kept in it."""
