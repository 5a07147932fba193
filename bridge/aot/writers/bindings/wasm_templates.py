"""The text of npm packages, with `$name` where a model's own things go."""

from __future__ import annotations

from string import Template

_SAME_NAMES = """
sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh exp expm1 log log1p log2 log10 cbrt pow atan2 hypot
"""
# C functions that code may call, by JavaScript's.
FUNCTIONS = {
    **{f"{name}{end}": f"Math.{name}" for name in _SAME_NAMES.split() for end in ("", "f")},
    **{f"{name}{end}": name for name in ("erf", "erfc") for end in ("", "f")},
    **{f"fmod{end}": "(x, y) => x % y" for end in ("", "f")},
    **{f"exp2{end}": "(x) => 2 ** x" for end in ("", "f")},
    "memcpy": "(to, from, bytes) => (u8.copyWithin(to, from, from + bytes), to)",
    "memmove": "(to, from, bytes) => (u8.copyWithin(to, from, from + bytes), to)",
    "memset": "(to, value, bytes) => (u8.fill(value, to, to + bytes), to)",
}
SCRIPT = Template("""\
/**
 * The model $name, compiled ahead of time for $target by tfbridge $version.
 *
$listed
 *
 *   import { $class_name } from "$name";
 *   const model = await $class_name.create();
 *   model.$run();
 *   console.log(model.$result);
 *
 * Arrays are row-major views of the model's memory. Any number of models may be there at once.
 */

// The memory of a model: what the code has, its stack, what it is told, the arrays, temporary memory.
const DATA_BYTES = $data_bytes;
const STACK_BYTES = $stack_bytes;
const ERROR_BYTES = 256;
const PAGE_BYTES = 65536;
$erf$sizes
let compiled;

/** The contents of a file that lies beside this one. */
async function load(name) {
  const url = new URL(name, import.meta.url);
  if (url.protocol === "file:") {
    const { readFile } = await import("node:fs/promises");
    return readFile(url);
  }
  const response = await fetch(url);
  if (!response.ok) throw new Error(`$${url}: $${response.status} $${response.statusText}`);
  return response.arrayBuffer();
}

export class $class_name {
  #arrays = {};
  #lists = {};
  #exports;
  #buffer;
  #context;
  #error;
  #temp;
  #at;
  #hasState = false;
  #sizes = [];
  #most = [];
  #sizeTable = 0;

  /** A model. The code is read from $name.wasm, once. */
  static async create(options = {}) {
    compiled ??= load("$name.wasm").then((code) => WebAssembly.compile(code));
    const module = options.module ?? (await compiled);
$load_constants    return new $class_name(module, options);
  }

  /** A model of code that is compiled already. */
  constructor(module, options = {}) {
    let end = DATA_BYTES + STACK_BYTES;
    const take = (bytes) => {
      const start = end;
      end = Math.ceil((start + bytes) / 64) * 64;
      return start;
    };
$set_most    this.#context = take($context_bytes);
    this.#error = take(ERROR_BYTES);
    const random = take(16);
    const error = this.#error;
$constants    const at = {};
$places    this.#at = at;
    this.#temp = take($temp_bytes);
    const lists = {};
    const list = (name, addresses) => (lists[name] = [take(4 * Math.max(1, addresses.length)), addresses]);
$slots    const pages = Math.ceil(Math.max(end, $least_bytes) / PAGE_BYTES);
    const memory = new WebAssembly.Memory({ initial: pages });
    this.#buffer = memory.buffer;
    const u8 = new Uint8Array(memory.buffer);
    const words = new Uint32Array(memory.buffer);
    const env = {
      __linear_memory: memory,
      __stack_pointer: new WebAssembly.Global({ value: "i32", mutable: true }, DATA_BYTES + STACK_BYTES),
      __indirect_function_table: new WebAssembly.Table({ initial: $table, element: "anyfunc" }),
$functions    };
    this.#exports = new WebAssembly.Instance(module, { env }).exports;
    for (const [name, [start, addresses]] of Object.entries(lists)) {
      words.set(addresses, start / 4);
      this.#lists[name] = start;
    }
    words[random / 4] = 1;
    words[random / 4 + 2] = 2;
$fill_constants$context  }

  #view(kind, address, count) {
    return new kind(this.#buffer, address, count);
  }

  #call(symbol, args, results) {
    const error = this.#view(Uint8Array, this.#error, ERROR_BYTES);
    error[0] = 0;
    if (this.#exports[symbol](this.#context, args, results, this.#temp) !== 0) {
      const length = error.indexOf(0);
      throw new Error(`$name: $${String.fromCharCode(...error.subarray(0, length)) || "the run failed"}`);
    }
  }

$runs$state$size_methods$arrays}

export default $class_name;
""")
ERF = """\

/** The error function: a series of terms of one sign near zero, and the continued fraction of erfc elsewhere. */
function erf(x) {
  if (!(Math.abs(x) < 1.5)) return x > 0 ? 1 - erfc(x) : x < 0 ? erfc(-x) - 1 : NaN;
  let term = x;
  let sum = x;
  for (let n = 1; n < 60; n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * Math.exp(-x * x) * sum;
}

function erfc(x) {
  if (!(x >= 1.5)) return x < -1.5 ? 2 - erfc(-x) : 1 - erf(x);
  let fraction = 0;
  for (let n = 200; n > 0; n--) fraction = n / 2 / (x + fraction);
  return Math.exp(-x * x) / Math.sqrt(Math.PI) / (x + fraction);
}
"""
SIZES = Template("""\
const SIZES = $names;
const quotient = (a, b) => (b === 0 ? 0 : Math.floor(a / b));
const product = (dims) => dims.reduce((a, b) => a * Math.max(b, 0), 1);
/** The dims of arrays, from the sizes of a run. */
const DIMS = {
$dims};
/** The temporary memory of runs with such sizes. */
const temporary = (sizes) => Math.max($temps);
""")
SET_MOST = Template("""\
    const bounds = $most;
    const most = SIZES.map((name, k) => options.most?.[name] ?? bounds[k]);
    const open = SIZES.filter((_, k) => !Number.isSafeInteger(most[k]) || most[k] < 0 || most[k] > bounds[k]);
    if (open.length) throw new RangeError(`most: tell the largest $${open.join(", ")}`);
    this.#most = most;
    this.#sizes = [...most];
    this.#sizeTable = take(8 * SIZES.length);
""")
FIX_MOST = Template("""\
    const most = $most;
    this.#most = most;
    this.#sizes = [...most];
    this.#sizeTable = take(8 * SIZES.length);
""")
PLACE = Template("    at.$which = take($bytes);\n")
PLACE_CONSTANTS = Template("""\
    const contents = options.constants && new Uint8Array(options.constants);
    const mark = contents && String.fromCharCode(...contents.subarray($bytes - 64, $bytes - 48));
    if (contents?.length !== $bytes || mark !== "$digest") {
      throw new Error("$file is not the one that was written with this module");
    }
    const weights = take($bytes);
""")
FILL_CONSTANTS = "    u8.set(contents, weights);\n"
LOAD_CONSTANTS = Template("""\
    options = { constants: options.constants ?? (await load("$file")), ...options };
""")
SET_INTEGER = Template("    words[(this.#context + $offset) / 4] = $value;\n")
SLOTS = Template('    list("$member", [$listed]);\n')
RUN = Template("""\
  /** Computes the results from the arguments; throws an Error that tells why it cannot. */
  $run() {
$ensure_state    this.#call("$symbol", this.#lists.$args, this.#lists.$results);
  }

""")
STATE = Template("""\
  /** Gives the state its first values. The first run does so by itself. */
  reset() {
    this.#call("$symbol", this.#temp, this.#lists.states);
    this.#hasState = true;
  }

  /** A copy of the state: to save it, or to go on elsewhere. */
  getState() {
    if (!this.#hasState) this.reset();
    return this.#view(Uint8Array, this.#at.state0, $bytes).slice();
  }

  /** Makes a copy of a state the present one. */
  setState(state) {
    if (state.length !== $bytes) throw new RangeError(`a state has $bytes bytes, not $${state.length}`);
    this.#view(Uint8Array, this.#at.state0, $bytes).set(state);
    this.#hasState = true;
  }

""")
SIZE_METHODS = Template("""\
  /** The sizes of the next run, by name; at first the largest. */
  get sizes() {
    return Object.fromEntries(SIZES.map((name, k) => [name, this.#sizes[k]]));
  }

  /** Tells sizes of the next runs, by name. */
  setSizes(sizes) {
    for (const name of Object.keys(sizes)) {
      if (!SIZES.includes(name)) throw new RangeError(`there is no size $${name}, but $${SIZES.join(", ")}`);
    }
    const next = SIZES.map((name, k) => sizes[name] ?? this.#sizes[k]);
    next.forEach((size, k) => {
      if (!Number.isSafeInteger(size) || size < 0 || size > this.#most[k]) {
        throw new RangeError(`$${SIZES[k]} is $${size}, and not between 0 and $${this.#most[k]}`);
      }
    });
$check    this.#sizes = next;
    const words = this.#view(Int32Array, this.#sizeTable, 2 * SIZES.length);
    next.forEach((size, k) => words.set([size, 0], 2 * k));
  }

$dims""")
CHECK_MEMORY = """\
    const isLarger = (size) => size(next) > size(this.#most);
    if (isLarger(temporary) || Object.values(DIMS).some((dims) => isLarger((sizes) => product(dims(sizes))))) {
      throw new RangeError("the model's memory is for smaller sizes");
    }
"""
DIMS = Template("""\
  /** The dims of $which. */
  get ${which}_dims() {
    return DIMS.$which(this.#sizes);
  }

""")
ARRAY = Template("""\
  /** $documentation */
  get $which() {
    return this.#view($view, this.#at.$which, $count);
  }

""")
NAMED = Template("""\
  get $own() {
    return this.$which;
  }

""")
TYPES = Template("""\
// The types of $name.mjs.

export interface Options {
  /** The code of $name.wasm; read from beside the module where it is not given. */
  module?: WebAssembly.Module;$options
}

/** The model $name, compiled ahead of time for $target by tfbridge $version. */
export declare class $class_name {
  /** A model. The code is read from $name.wasm, once. */
  static create(options?: Options): Promise<$class_name>;
  /** A model of code that is compiled already. */
  constructor(module: WebAssembly.Module, options?: Options);
$runs$state$sizes$fields}

export default $class_name;
""")
RUN_TYPE = Template("""\
  /** Computes the results from the arguments; throws an Error that tells why it cannot. */
  $run(): void;
""")
STATE_TYPES = """\
  /** Gives the state its first values. The first run does so by itself. */
  reset(): void;
  /** A copy of the state: to save it, or to go on elsewhere. */
  getState(): Uint8Array;
  /** Makes a copy of a state the present one. */
  setState(state: Uint8Array): void;
"""
SIZE_TYPES = Template("""\
  /** The sizes of the next run, by name; at first the largest. */
  readonly sizes: Required<{ $names }>;
  /** Tells sizes of the next runs, by name. */
  setSizes(sizes: { $names }): void;
""")

# The test of a package.
GOLDEN = Template("""\
// Runs the model on arguments of which TensorFlow's results are known. Exit status: how many results differ.
import { readFileSync } from "node:fs";
import { $class_name } from "./$name.mjs";

const golden = new Uint8Array(readFileSync(new URL("golden.bin", import.meta.url)));
let failures = 0;

function bytesOf(array) {
  return new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
}

function small(bits, [exponentBits, fractionBits]) {
  const bias = 2 ** (exponentBits - 1) - 1;
  const exponent = (bits >> fractionBits) & (2 * bias + 1);
  const fraction = bits & (2 ** fractionBits - 1);
  let value = ((exponent ? 2 ** fractionBits : 0) + fraction) * 2 ** (Math.max(exponent, 1) - bias - fractionBits);
  if (exponentBits === 4 ? (bits & 127) === 127 : exponent === 2 * bias + 1) {
    value = fraction || exponentBits === 4 ? NaN : Infinity;
  }
  return bits >> (exponentBits + fractionBits) ? -value : value;
}

function values(bytes, kind, bits) {
  const data = bytes.slice().buffer;
  if (kind === "f32") return [...new Float32Array(data)];
  if (kind === "f64") return [...new Float64Array(data)];
  if (kind === "small") {
    return [...(bits[0] + bits[1] > 8 ? new Uint16Array(data) : new Uint8Array(data))].map((b) => small(b, bits));
  }
  return [...new Uint8Array(data)];
}

function check(title, array, offset, bytes, kind, bits, tolerance) {
  const actual = values(bytesOf(array), kind, bits);
  const expected = values(golden.subarray(offset, offset + bytes), kind, bits);
  const differ = expected.filter((b, k) => {
    const a = actual[k];
    const isClose = Number.isFinite(b) && Math.abs(a - b) <= tolerance * Math.max(1, Math.abs(b));
    return !(Object.is(a, b) || a === b || isClose);
  }).length;
  console.log(`$name: $${title}: $${expected.length} numbers, $${differ} differ`);
  failures += differ > 0 || actual.length !== expected.length ? 1 : 0;
}

$tests
process.exit(failures);
""")
GOLDEN_RUN = Template("""\
{
  const model = await $class_name.create($options);
$sizes$fill  for (let k = 0; k < $times; k++) model.$run();
$checks}
""")
FILL = Template("  bytesOf(model.$which).set(golden.subarray($offset, $offset + $bytes));\n")
CHECK = Template('  check("$which", model.$which, $offset, $bytes, "$kind", $small, $tolerance);\n')
