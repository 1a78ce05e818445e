"""Mechanisms: from a sensitivity to noise, together with the event the noise stands for."""
