"""What other languages run an exported model with: one file for each."""
