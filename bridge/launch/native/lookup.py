"""The lookup of a cache entry by its key."""

from __future__ import annotations

from ....runtime.llvm.ir_builder import Function, Int, ModuleText, Ptr, VectorValue
from ....runtime.llvm.types import parameters
from ..structs import BUCKETS
from .calls import call_i1, call_i32
from .layouts import ENTRY, STATE

_KEY = parameters("ptr key, i64 bytes, i64 hash")


def write(module: ModuleText) -> None:
    """Writes `find` and `matches`."""
    _write_matches(module)
    _write_find(module)


def _write_matches(module: ModuleText) -> None:
    """matches(cache entry, key, bytes, hash) -> whether the entry has that key."""
    f = Function(module, "matches", [("ptr", "cache_entry"), *_KEY], "i1")
    entry, key = f.pointers("cache_entry", "key")
    size, hash_ = f.integers("bytes", "hash")
    same_hash = ENTRY.field(entry, "hash").load_int().equals(hash_)
    same_size = ENTRY.field(entry, "key_bytes").load_int().equals(size)
    with f.if_(same_hash & same_size, is_equal=f.constant("i1", False)) as branch:
        difference = call_i32(f, "memcmp", [ENTRY.field(entry, "key").load_ptr(), key, size])
        branch.is_equal = difference.equals(0)
    f.ret(branch.is_equal)
    module.add("matches", f.text())


def _write_find(module: ModuleText) -> None:
    """find(state, key, bytes, hash) -> entry or null: first the last hit, then the hash table."""
    f = Function(module, "find", [("ptr", "state"), *_KEY], "ptr")
    state, key = f.pointers("state", "key")
    size, hash_ = f.integers("bytes", "hash")

    def matches(entry: Ptr) -> VectorValue:
        return call_i1(f, "matches", [entry, key, size, hash_])

    last_hit = Ptr.of(f, STATE.field(state, "last_hit").atomic_load("acquire"))
    with f.if_(last_hit.is_not_null()), f.if_(matches(last_hit)):
        f.ret(last_hit)
    bucket = _bucket(state, hash_)
    with f.repeat(entry=Ptr.of(f, bucket.atomic_load("ptr", "acquire"))) as chain:
        chain.while_(chain.entry.is_not_null())
        with f.if_(matches(chain.entry)):
            STATE.field(state, "last_hit").atomic_store(chain.entry, "release")
            f.ret(chain.entry)
        chain.entry = Ptr.of(f, ENTRY.field(chain.entry, "next").atomic_load("acquire"))
    f.ret(f.null)
    module.add("find", f.text())


def _bucket(state: Ptr, hash_: Int) -> Ptr:
    """The address of the first entry of a hash table's bucket."""
    return STATE.field(state, "buckets").address.at(hash_ & (BUCKETS - 1), "ptr")
