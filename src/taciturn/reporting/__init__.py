"""Plots, tables and pages, made from run folders alone."""
