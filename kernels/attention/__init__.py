"""Softmax attention in its dense forms, decoding included."""
