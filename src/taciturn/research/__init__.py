"""Research: the paper's reproduction and theorems, benchmarks, and the fused GPU engine. Nothing else imports it."""
