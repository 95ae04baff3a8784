"""Trained architectures outside their search: how they were trained, their weights, and training them further.

model, vocabulary, task = nas.load("best.yaml")
"""
