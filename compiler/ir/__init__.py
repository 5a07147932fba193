"""The IR: modules, shapes, layouts, literals, and their verifier."""
