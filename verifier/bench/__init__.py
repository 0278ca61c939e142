"""Benchmarks: what is measured, and the made-up input it is measured on."""
