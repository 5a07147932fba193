"""Writes what build systems read to find a compiled object: a CMake package and a file for pkg-config."""

from __future__ import annotations

from string import Template

from .header import Model

_CMAKE = Template("""\
# $name-config.cmake: find_package($name CONFIG), then target_link_libraries(program $name).
if(NOT TARGET $name)
  add_library($name OBJECT IMPORTED)
  set_target_properties($name PROPERTIES
    IMPORTED_OBJECTS "$${CMAKE_CURRENT_LIST_DIR}/$name.o"
    INTERFACE_INCLUDE_DIRECTORIES "$${CMAKE_CURRENT_LIST_DIR}")
  if(UNIX)
    set_property(TARGET $name PROPERTY INTERFACE_LINK_LIBRARIES m)
  endif()
endif()
""")
_PKG_CONFIG = Template("""\
Name: $name
Description: a model compiled by tfbridge
Version: $version
Cflags: -I$${pcfiledir}
Libs: $${pcfiledir}/$name.o -lm
""")


def write_cmake_package(model: Model) -> str:
    """The text of NAME-config.cmake."""
    return _CMAKE.substitute(name=model.name)


def write_pkg_config(model: Model) -> str:
    """The text of NAME.pc."""
    return _PKG_CONFIG.substitute(name=model.name, version=model.version)
