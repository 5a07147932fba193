"""The graph pass: clusters become launch nodes."""
