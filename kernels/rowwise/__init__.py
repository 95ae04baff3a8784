"""Operations on rows: norms, softmax, gated activations, rotary positions, cross-entropy."""
