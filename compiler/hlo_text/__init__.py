"""HLO text, both ways: `parser.parse_hlo`, and `printer.print_module`, which `str(module)` calls."""
