"""Names in the C and C++ that is written: those that may be chosen, and those of a model, which may be any text."""

from __future__ import annotations

import functools
import re
from string import Template

from .header import size_templates as sized_header_text
from .header import templates as header_text

MAX_LENGTH = 100
_ALLOWED = (
    f"a letter, then letters, digits and single underscores, at most {MAX_LENGTH} in all, "
    "no underscore at an end"
)

_KEYWORDS = """
alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class co_await
co_return co_yield compl concept const const_cast consteval constexpr constinit continue contract_assert decltype
default delete do double dynamic_cast else enum explicit export extern false final float for fortran friend goto if
import inline int long module mutable namespace new noexcept not not_eq nullptr operator or or_eq override private
protected public register reinterpret_cast requires restrict return short signed sizeof static static_assert
static_cast struct switch template this thread_local throw true try typedef typeid typename typeof typeof_unqual
union unsigned using virtual void volatile wchar_t while xor xor_eq
"""

# Of the headers that are included, and of those that most programs include beside them.
_LIBRARY = """
main std posix linux unix i386 assert errno setjmp offsetof complex imaginary EXIT_FAILURE EXIT_SUCCESS MB_CUR_MAX
RAND_MAX abort abs aligned_alloc at_quick_exit atexit atof atoi atol atoll bsearch calloc div exit free free_sized
free_aligned_sized getenv labs ldiv llabs lldiv malloc mblen mbstowcs mbtowc memalignment qsort quick_exit rand
realloc srand strtod strtof strtol strtold strtoll strtoul strtoull system wcstombs wctomb memccpy memchr memcmp
memcpy memmove memset memset_explicit strcat strchr strcmp strcoll strcpy strcspn strdup strerror strlen strncat
strncmp strncpy strndup strpbrk strrchr strspn strstr strtok strxfrm BUFSIZ EOF FILE FILENAME_MAX FOPEN_MAX L_tmpnam
NULL SEEK_CUR SEEK_END SEEK_SET TMP_MAX clearerr fclose feof ferror fflush fgetc fgetpos fgets fopen fprintf fputc
fputs fread freopen fscanf fseek fsetpos ftell fwrite getc getchar gets perror printf putc putchar puts remove
rename rewind scanf setbuf setvbuf snprintf sprintf sscanf stderr stdin stdout tmpfile tmpnam ungetc vfprintf
vfscanf vprintf vscanf vsnprintf vsprintf vsscanf HUGE_VAL HUGE_VALF HUGE_VALL INFINITY NAN MATH_ERRNO
MATH_ERREXCEPT fpclassify isfinite isinf isnan isnormal signbit
"""
_MATHEMATICS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax
fmin fmod frexp hypot ilogb j0 j1 jn ldexp lgamma llrint llround log log10 log1p log2 logb lrint lround modf nan
nearbyint nextafter nexttoward pow remainder remquo rint round scalbln scalbn sin sinh sqrt tan tanh tgamma trunc y0
y1 yn
"""  # and with f and l at the end
_RESERVED_PREFIX = "tfbridge"
# Types, limits and constants of integers, and the accessors of a header.
_NO_CLASS = re.compile(r".*_t|[A-Z][A-Z0-9_]*_(MAX|MIN|WIDTH|C)|(set_)?(arg|result|state)[\d_].*")


def check(name: str | None, cpp_class: str) -> None:
    """Checks the name of the files and of the C API, where one is given, and the class with its namespaces.

    Raises: ValueError  not an identifier, or one that C, C++ or the header itself uses.
    """
    if name is not None:
        _check_word("name", name)
    for part in cpp_class.split("::") if isinstance(cpp_class, str) else [cpp_class]:
        _check_word("cpp_class", part)
        if _NO_CLASS.fullmatch(part) or part in header_identifiers(name or ""):
            raise ValueError(f"cpp_class: {part!r} is a name that the header or one of C's uses")


def _check_word(what: str, word: str) -> None:
    shown = repr(word) if len(repr(word)) <= MAX_LENGTH else repr(word)[:MAX_LENGTH] + "..."
    if (
        not isinstance(word, str)
        or not re.fullmatch(r"[A-Za-z](_?[A-Za-z0-9])*", word)
        or len(word) > MAX_LENGTH
    ):
        raise ValueError(f"{what}: {shown} is not an identifier of C that may be chosen: {_ALLOWED}")
    if word in _keywords():
        raise ValueError(f"{what}: {shown} is a keyword of C or C++")
    if word in _library() or word.lower().startswith(_RESERVED_PREFIX):
        raise ValueError(f"{what}: {shown} is a name of C's library or of what all headers share")


def is_reserved(word: str) -> bool:
    """Whether C, C++ or what programs include has the name."""
    return word in _keywords() or word in _library() or word.lower().startswith(_RESERVED_PREFIX)


@functools.cache
def _keywords() -> frozenset[str]:
    return frozenset(_KEYWORDS.split())


@functools.cache
def _library() -> frozenset[str]:
    return frozenset(
        (*_LIBRARY.split(), *(name + kind for name in _MATHEMATICS.split() for kind in ("", "f", "l")))
    )


@functools.cache
def header_identifiers(name: str) -> frozenset[str]:
    """Every identifier of the header of a model, but those of its arrays."""
    values = {
        "name": name,
        "NAME": name.upper(),
        "model": f"{name}_model",
        "entry": f"{name}_entry",
        "GUARD": f"{name.upper()}_H",
        "call": name,
        "CALL": name.upper(),
        "run": "run",
        "args": "args",
        "results": "results",
    }
    texts = (*vars(header_text).values(), *vars(sized_header_text).values())
    templates = (value for value in texts if isinstance(value, Template))
    code = "\n".join(
        re.sub(r"/\*.*?\*/|\"[^\"\n]*\"", " ", template.template, flags=re.DOTALL) for template in templates
    )
    return frozenset(re.findall(r"(?<![\w$])[A-Za-z_]\w*", Template(code).safe_substitute(values)))


def identifier(name: str) -> str:
    """A part of an identifier that is like a name of a model; empty when nothing of it is left."""
    words = re.sub(r"[^A-Za-z0-9]+", "_", name).strip("_")
    return words if not words[:1].isdigit() else f"m_{words}"


def file_name(name: str) -> str:
    """The name of the files and of the C API of a model of this name: one that may be chosen."""
    word = identifier(name)[: MAX_LENGTH - 2].rstrip("_") or "model"
    try:
        check(word, "Model")
    except ValueError:
        return f"m_{word}"
    return word


def class_name(name: str) -> str:
    """The class of a model of this name, that may be chosen: `MobilenetV2` of `mobilenet_v2`."""
    word = "".join(part[:1].upper() + part[1:] for part in name.split("_"))
    try:
        check(name, word)
    except ValueError:
        return "Model"
    return word


def in_comment(text: str) -> str:
    """A text of a model for a comment: letters and digits of ASCII, a few signs, the rest as their numbers."""
    shown = text if len(text) <= MAX_LENGTH else text[:MAX_LENGTH] + "..."
    return re.sub(r"[^A-Za-z0-9_ .,:;()\[\]/+-]", lambda match: f"<{ord(match[0]):x}>", shown)
