"""Figures as plain values, and the code that draws them as SVG."""
