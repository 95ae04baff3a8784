"""What a tree's root can be: a decoder, an encoder, an encoder with a decoder."""
