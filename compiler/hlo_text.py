"""HLO text, both ways: `print_module` (which `str(module)` calls) and `parse_hlo`.

Attributes are a table of kinds, print beside parse, in hlo_attributes; literals are in hlo_literal.
"""

from .hlo_parse import parse_hlo
from .hlo_print import print_computation, print_instructions, print_module

__all__ = ["parse_hlo", "print_computation", "print_instructions", "print_module"]
