"""Tessera: finds sequence-model architectures for your data, your device and your budget."""
