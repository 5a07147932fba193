"""What profilers and debuggers are told of compiled code: where its functions are, by the names of TensorFlow's ops."""
