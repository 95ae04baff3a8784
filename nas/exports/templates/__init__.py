"""Code that exports carry: the loader, plain operations, and the classes of Hugging Face folders."""
