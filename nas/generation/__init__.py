"""Text from a trained model: sampling and beam search, with the state of a streaming model kept between symbols."""
