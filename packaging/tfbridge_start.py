"""Switches auto-clustering on when TensorFlow is imported, in a program that knows nothing of tfbridge.

`tfbridge_auto_jit.pth`, which is installed beside this file, imports it at the start of every Python process in whose
environment a flag is set. Most of them never import TensorFlow, so nothing else is imported before that.
"""

import sys


class Finder:
    """Finds TensorFlow by the other finders, with a loader that enables auto-clustering. An error is printed, and
    TensorFlow runs without tfbridge."""

    def find_spec(self, name, path=None, target=None):
        """The spec of TensorFlow; None for every other module."""
        if name != "tensorflow":
            return None
        try:
            from tfbridge.bridge.api.import_hook import spec_of

            return spec_of(name, path, target, [finder for finder in sys.meta_path if finder is not self])
        except Exception as error:
            sys.meta_path.remove(self)
            print(f"tfbridge: {error}", file=sys.stderr)
            return None


sys.meta_path.insert(0, Finder())
