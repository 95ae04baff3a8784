"""The formats that `nas export` writes. A module registers its format with `@export_format`."""
