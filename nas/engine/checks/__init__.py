"""What a search refuses before anything is stored or trained."""
