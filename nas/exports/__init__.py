"""Trials leave a study as files. Each format is one file of `nas.exports.formats`."""
