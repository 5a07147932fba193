"""The files of an exported model: what a writer is told of it, and one file here for each kind that is written."""
