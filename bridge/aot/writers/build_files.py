"""Writes what build systems read to find a compiled object: a CMake package and a file for pkg-config."""

from __future__ import annotations

from pathlib import Path
from string import Template

from .model import Model

_CMAKE = Template("""\
# $name-config.cmake: find_package($name CONFIG), then target_link_libraries(program $name).
if(NOT TARGET $name)
  add_library($name $kind IMPORTED)
  set_target_properties($name PROPERTIES
    $property "$${CMAKE_CURRENT_LIST_DIR}/$file"
$import_library$sources    INTERFACE_INCLUDE_DIRECTORIES "$${CMAKE_CURRENT_LIST_DIR}")
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
Libs: $${pcfiledir}/$file$run_path -lm
""")


def write_cmake_package(model: Model) -> str:
    """The text of NAME-config.cmake."""
    kind = {".o": "OBJECT", ".a": "STATIC", ".lib": "STATIC"}.get(Path(model.file).suffix, "SHARED")
    where = "IMPORTED_OBJECTS" if kind == "OBJECT" else "IMPORTED_LOCATION"
    import_library = f'    IMPORTED_IMPLIB "${{CMAKE_CURRENT_LIST_DIR}}/{model.file}"\n'
    return _CMAKE.substitute(
        name=model.name,
        file=model.file,
        kind=kind,
        property=where,
        sources=f'    INTERFACE_SOURCES "${{CMAKE_CURRENT_LIST_DIR}}/{model.source_file}"\n'
        if model.source_file
        else "",
        import_library=import_library if model.file.endswith(".dll") else "",
    )


def write_pkg_config(model: Model) -> str:
    """The text of NAME.pc."""
    run_path = " -Wl,-rpath,${pcfiledir}" if model.file.endswith((".so", ".dylib")) else ""
    return _PKG_CONFIG.substitute(name=model.name, file=model.file, version=model.version, run_path=run_path)
