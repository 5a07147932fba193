"""The header of an exported model: a C API, and a C++ class over it."""
