"""TensorFlow's private names and types."""
