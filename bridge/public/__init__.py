"""Modules of the top level: `tfbridge.__path__` ends here, so that `bridge/public/aot.py` is `tfbridge.aot`.

Their imports are absolute: they are loaded as parts of `tfbridge`, not of this folder.
"""
