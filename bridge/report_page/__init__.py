"""The page that shows what became of a function: its graph, where time and memory go, and what runs in TensorFlow."""
