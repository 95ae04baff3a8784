"""Writes trials of a study to files. Each format is one file of `nas.exports.formats`."""
