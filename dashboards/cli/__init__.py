"""The commands of this package: nas.cli finds them by their file names."""
