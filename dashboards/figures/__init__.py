"""Figures as plain values, and what draws them: SVG, Plotly, a table."""
