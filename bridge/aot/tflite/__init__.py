"""Models of LiteRT: files that end in .tflite, read and rebuilt as TensorFlow functions."""
