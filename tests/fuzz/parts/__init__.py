"""The parts of the fuzzer: each module holds one, as PART."""
