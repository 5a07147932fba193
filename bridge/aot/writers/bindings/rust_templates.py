"""The text of Rust crates, with `$name` where a model's own things go."""

from __future__ import annotations

from string import Template

CARGO = Template("""\
[package]
name = "$crate"
version = "0.1.0"
edition = "2021"
description = "A model compiled by tfbridge $version for $target"
publish = false

[features]
std = []  # errors are those of std

[dependencies]
""")
BUILD = Template("""\
//! Tells cargo where the model's static library lies.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").unwrap();
    let target = "$architecture";
    let architecture = std::env::var("CARGO_CFG_TARGET_ARCH").unwrap();
    if !target.is_empty() && architecture != target {
        panic!("$name was compiled for $target, not for {}: export it with --target-triple", architecture);
    }
    println!("cargo:rustc-link-search=native={}/native", folder);
    println!("cargo:rustc-link-lib=static=$name");
    if std::env::var("CARGO_CFG_UNIX").is_ok() {
        println!("cargo:rustc-link-lib=m");
    }
    println!("cargo:rerun-if-changed=native");
}
""")
LIBRARY = Template("""\
//! The model $name, compiled ahead of time for $target by tfbridge $version.
//!
$listed
//!
//! Arrays are row-major. A model may be used by one thread at a time; any number of them may run at once.
//!
//! ```no_run
$example
//! ```
#![no_std]
#![allow(non_snake_case)] // names are the model's
#![allow(dead_code)]
#![allow(unused_parens)]

#[cfg(feature = "std")]
extern crate std;

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;

/// The most threads of a run.
pub const THREADS: usize = $threads;
$memory$constants_type$elements$sizes
$complex/// Why there is no model, or why a run failed.
#[derive(Clone, Copy)]
pub struct Error {
    message: [u8; 256],
}

impl Error {
    fn new(message: &str) -> Error {
        let mut error = Error { message: [0; 256] };
        for (to, from) in error.message.iter_mut().zip(message.bytes().take(255)) {
            *to = from;
        }
        error
    }

    /// The reason.
    pub fn message(&self) -> &str {
        let length = self.message.iter().position(|&byte| byte == 0).unwrap_or(256);
        core::str::from_utf8(&self.message[..length]).unwrap_or("an error")
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

#[cfg(feature = "std")]
impl std::error::Error for Error {}

/// An address, of 8 bytes on every target.
#[repr(C, align(8))]
struct Slot(*const c_void);

#[repr(C)]
struct Context {
$context}

// The compiled code. Names end in a number of their own, which the object of another compilation does not have.
extern "C" {
$externs}

$pool/// The model and where its arrays lie.
pub struct Model<'m> {
$fields    temp: *mut c_void,
    constants: *const c_void,
    rng_state: [u64; 2],
    memory: PhantomData<&'m mut [u8]>,
}

// It has its memory for itself.
unsafe impl Send for Model<'_> {}

impl<'m> Model<'m> {
    /// A model in this memory.
    pub fn new(memory: &'m mut [u8]$most) -> Result<Model<'m>, Error> {
        if memory.len() < $bytes {
            return Err(Error::new("the memory is too small"));
        }
        let mut model = Model {
$values            temp: core::ptr::null_mut(),
            constants: core::ptr::null(),
            rng_state: [1, 2],
            memory: PhantomData,
        };
        let start = memory.as_mut_ptr();
        let mut at = unsafe { start.add((64 - start as usize % 64) % 64) };
$placing        model.temp = at as *mut c_void;
        Ok(model)
    }
$set_sizes$set_constants$set_pool
    fn context(&mut self, error: &mut Error) -> Context {
        Context {
            parallel_for: Slot(core::ptr::null()),
            pool: Slot(core::ptr::null()),
            threads: $threads,
            replica_id: 0,
            num_replicas: 1,
            partition_id: 0,
            error_message: Slot(error.message.as_mut_ptr() as *const c_void),
            error_capacity: error.message.len() as i64,
            rng_state: Slot(self.rng_state.as_mut_ptr() as *const c_void),
            feeds: Slot(core::ptr::null()),
            recorder: Slot(core::ptr::null()),
            constants: Slot(self.constants),
            packed: Slot(core::ptr::null()),
            sizes: Slot(core::ptr::null()),
        }
    }

    fn begin(&mut self, error: &mut Error) -> Result<Context, Error> {
$check_constants        #[allow(unused_mut)]
        let mut context = self.context(error);
$use_pool$use_sizes        Ok(context)
    }
$state
$runs$arrays}
""")
EXAMPLE = Template("""\
//! # use $crate::*;
//! let mut memory = vec![0u8; $memory];
//! let mut model = Model::new(&mut memory$most)?;
//! model.$run()?;
//! # Ok::<(), Error>(())""")
EXTERN = Template("""\
    fn $symbol(
        context: *mut Context, args: *const *const c_void, results: *const *mut c_void, temp: *mut c_void,
    ) -> i32;
""")
ELEMENTS = Template("""\
/// Elements of $title.
pub const ${NAME}_ELEMENTS: usize = $elements;
""")
MEMORY = Template("""\
/// Temporary memory of a run, a part of `MEMORY_BYTES`.
pub const TEMP_BYTES: usize = $temp;
/// What [`Model::new`] wants: arrays, temporary memory, and what aligning them takes.
pub const MEMORY_BYTES: usize = $bytes;
""")
OPEN_MEMORY = Template("""\
/// Temporary memory of runs with such sizes.
pub fn temp_bytes(sizes: &[i64; SIZES]) -> usize {
    let _ = sizes;
    #[allow(unused_mut)]
    let mut most: i64 = $temp;
$temps    count(most)
}

/// What [`Model::new`] wants for runs with sizes up to these: arrays, temporary memory, and what aligning them takes.
pub fn memory_bytes(most: &[i64; SIZES]) -> usize {
    $fixed$arrays + aligned(temp_bytes(most))
}
""")
SIZES = Template("""\

/// How many sizes change from run to run.$refused
pub const SIZES: usize = $count;
$places$bounds
fn quotient(a: i64, b: i64) -> i64 {
    if b == 0 {
        return 0;
    }
    a / b - (a % b != 0 && (a < 0) != (b < 0)) as i64
}

fn larger(a: i64, b: i64) -> i64 {
    a.max(b)
}

fn count(number: i64) -> usize {
    number.max(0) as usize
}

fn aligned(bytes: usize) -> usize {
    (bytes + 63) / 64 * 64
}
$functions
""")
SIZE = Template("""\
/// The place of a size. $documentation
pub const SIZE_$NAME: usize = $place;
""")
MOST = Template("""\
const MOST: [i64; SIZES] = $most;
""")
DIMS = Template("""
/// The dims of $which for some sizes.
pub fn ${which}_dims(sizes: &[i64; SIZES]) -> [usize; $rank] {
    let _ = sizes;
    [$dims]
}

/// Its elements.
pub fn ${which}_elements(sizes: &[i64; SIZES]) -> usize {
    ${which}_dims(sizes).iter().product()
}

fn ${which}_bytes(sizes: &[i64; SIZES]) -> usize {
    ${which}_elements(sizes) * $item_bytes
}
""")
CONSTANTS = Template("""\
/// Bytes of $file.
pub const CONSTANTS_BYTES: usize = $bytes;
/// What lies at a multiple of 64: `static WEIGHTS: &Aligned<[u8; CONSTANTS_BYTES]> =
/// &Aligned(*include_bytes!("$file"));`
#[repr(C, align(64))]
pub struct Aligned<T>(pub T);
""")
COMPLEX = """\
/// A complex number.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Complex<T> {
    pub re: T,
    pub im: T,
}

"""
POOL = """\
/// Works on `[low, high)` of a parallel loop; `thread` is below `THREADS`, and no two calls that run at the same time
/// have the same one.
pub type Body = unsafe extern "C" fn(state: *mut c_void, low: i64, high: i64, thread: i64);
/// A program's own thread pool: calls `body` until all of `[0, tasks)` is done, in parts of about `grain` or more, and
/// returns when all calls have.
pub type ParallelFor =
    unsafe extern "C" fn(pool: *mut c_void, tasks: i64, grain: i64, body: Body, state: *mut c_void);
type Kernel = unsafe extern "C" fn(*mut Context, *mut c_void, i64, i64, i64);

struct Pool {
    parallel_for: ParallelFor,
    pool: *mut c_void,
}

struct Launch {
    context: *mut Context,
    kernel: Kernel,
    buffers: *mut c_void,
}

unsafe extern "C" fn run_launch(state: *mut c_void, low: i64, high: i64, thread: i64) {
    let launch = &*(state as *const Launch);
    (launch.kernel)(launch.context, launch.buffers, low, high, thread);
}

unsafe extern "C" fn launch_on_pool(
    context: *mut Context, kernel: Kernel, buffers: *mut c_void, tasks: i64, grain: i64,
) {
    let pool = &*((*context).pool.0 as *const Pool);
    let mut launch = Launch { context, kernel, buffers };
    (pool.parallel_for)(pool.pool, tasks, grain, run_launch, &mut launch as *mut Launch as *mut c_void);
}

"""
PLACE = Template("        model.$member[$number] = at as $kind c_void;\n")
PLACE_STATE = "        model.state = at;\n"
CLEAR = Template("        unsafe { core::ptr::write_bytes(at, 0, $bytes) };\n")
ADVANCE = Template("        at = unsafe { at.add($bytes) };\n")
SET_SIZES = Template("""
    /// The sizes of the next run; at first the largest.
    pub fn sizes(&self) -> &[i64; SIZES] {
        &self.sizes
    }

    /// Tells the sizes of the next runs.
    pub fn set_sizes(&mut self, sizes: [i64; SIZES]) -> Result<(), Error> {
        if sizes.iter().zip(&self.most).any(|(size, most)| size < &0 || size > most) {
            return Err(Error::new("a size is negative or above its bound"));
        }
$checks        self.sizes = sizes;
        Ok(())
    }
""")
CHECK_BYTES = Template("""\
        if $function(&sizes) > $function(&self.most) {
            return Err(Error::new("the model's memory is for smaller sizes: $what"));
        }
""")
SET_CONSTANTS = Template("""
    /// Tells where the contents of $file lie, at a multiple of 64: `Aligned` has such a place.
    pub fn set_constants(&mut self, constants: &'m [u8]) -> Result<(), Error> {
        let size = constants.len();
        if size < 64 || constants.as_ptr() as usize % 64 != 0 {
            return Err(Error::new("the constants of $file are too few, or not at a multiple of 64"));
        }
        if &constants[size - 64..size - 64 + $digest_bytes] != b"$digest" {
            return Err(Error::new("$file is not the one that was written with this crate"));
        }
        self.constants = constants.as_ptr() as *const c_void;
        Ok(())
    }
""")
CHECK_CONSTANTS = Template("""\
        if self.constants.is_null() {
            return Err(Error::new("the constants of $file are not set"));
        }
""")
SET_POOL = """
    /// Lets parallel loops run on a pool.
    ///
    /// # Safety
    /// The function does what [`ParallelFor`] says, with `pool` as long as the model lives.
    pub unsafe fn set_thread_pool(&mut self, parallel_for: ParallelFor, pool: *mut c_void) {
        self.pool = Some(Pool { parallel_for, pool });
    }
"""
USE_POOL = """\
        if let Some(pool) = &self.pool {
            context.parallel_for = Slot(launch_on_pool as *const c_void);
            context.pool = Slot(pool as *const Pool as *const c_void);
        }
"""
USE_SIZES = "        context.sizes = Slot(self.sizes.as_ptr() as *const c_void);\n"
STATE = Template("""
    /// Gives the state its first values. The first run does so by itself.
    pub fn reset(&mut self) -> Result<(), Error> {
        let mut error = Error::new("");
        let mut context = self.begin(&mut error)?;
        let arrays: [*mut c_void; $slots] = [
$places        ];
        let none = [core::ptr::null::<c_void>()];
        let status = unsafe { $symbol(&mut context, none.as_ptr(), arrays.as_ptr(), self.temp) };
        if status != 0 {
            return Err(error);
        }
        self.has_state = true;
        Ok(())
    }

    /// All of the state, to save it.
    pub fn state(&mut self) -> Result<&[u8; $bytes], Error> {
        if !self.has_state {
            self.reset()?;
        }
        Ok(unsafe { &*(self.state as *const [u8; $bytes]) })
    }

    /// Makes a copy of a state the present one.
    pub fn set_state(&mut self, state: &[u8; $bytes]) {
        unsafe { core::ptr::copy_nonoverlapping(state.as_ptr(), self.state, $bytes) };
        self.has_state = true;
    }
""")
ENSURE_STATE = """\
        if !self.has_state {
            self.reset()?;
        }
"""
RUN = Template("""\
    /// Computes the results from the arguments.
    pub fn $run(&mut self) -> Result<(), Error> {
$ensure_state        let mut error = Error::new("");
        let mut context = self.begin(&mut error)?;
        let status = unsafe { $symbol(&mut context, self.$args.as_ptr(), self.$results.as_ptr(), self.temp) };
        if status != 0 {
            return Err(error);
        }
        Ok(())
    }

""")
READ = Template("""\
    /// $documentation
    pub fn $which(&self) -> &$slice {
        unsafe { &*($address as *const $slice) }
    }

""")
WRITE = Template("""\
    /// The same, to be written.
    pub fn ${which}_mut(&mut self) -> &mut $slice {
        unsafe { &mut *($address as *mut $slice) }
    }

""")
CHANGING_READ = Template("""\
    /// $documentation
    pub fn $which(&self) -> &$slice {
        unsafe { core::slice::from_raw_parts($address as *const $type$count) }
    }

""")
CHANGING_WRITE = Template("""\
    /// The same, to be written.
    pub fn ${which}_mut(&mut self) -> &mut $slice {
        unsafe { core::slice::from_raw_parts_mut($address as *mut $type$count) }
    }

""")
NAMED_READ = Template("""\
    /// The same as `$which`.
    pub fn $own(&self) -> &$slice {
        self.$which()
    }

""")
NAMED_WRITE = Template("""\
    /// The same as `${which}_mut`.
    pub fn ${own}_mut(&mut self) -> &mut $slice {
        self.${which}_mut()
    }

""")

# The test of a crate.
GOLDEN = Template("""\
//! Runs the model on arguments of which TensorFlow's results are known.

use $crate::Model;

static GOLDEN: &[u8] = include_bytes!("golden.bin");
$constants
#[allow(dead_code)]
#[derive(Clone, Copy)]
enum Kind {
    Bits,
    F32,
    F64,
    Small(u32, u32),
}

fn fill<T>(array: &mut [T], offset: usize, bytes: usize) {
    assert_eq!(core::mem::size_of_val(array), bytes);
    unsafe { core::ptr::copy_nonoverlapping(GOLDEN[offset..].as_ptr(), array.as_mut_ptr() as *mut u8, bytes) };
}

fn small(bits: u32, exponent_bits: u32, fraction_bits: u32) -> f64 {
    let bias = (1i32 << (exponent_bits - 1)) - 1;
    let exponent = (bits >> fraction_bits) as i32 & (2 * bias + 1);
    let fraction = (bits & ((1 << fraction_bits) - 1)) as f64;
    let value = if exponent == 2 * bias + 1 && exponent_bits != 4 {
        if fraction > 0.0 { f64::NAN } else { f64::INFINITY }
    } else if exponent_bits == 4 && bits & 127 == 127 {
        f64::NAN
    } else {
        let one = if exponent > 0 { (1u32 << fraction_bits) as f64 } else { 0.0 };
        (one + fraction) * 2f64.powi(exponent.max(1) - bias - fraction_bits as i32)
    };
    if bits >> (exponent_bits + fraction_bits) & 1 == 1 { -value } else { value }
}

fn values(bytes: &[u8], kind: Kind) -> Vec<f64> {
    match kind {
        Kind::Bits => bytes.iter().map(|&byte| byte as f64).collect(),
        Kind::F32 => bytes.chunks(4).map(|b| f32::from_ne_bytes([b[0], b[1], b[2], b[3]]) as f64).collect(),
        Kind::F64 => bytes
            .chunks(8)
            .map(|b| f64::from_ne_bytes([b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7]]))
            .collect(),
        Kind::Small(exponent, fraction) => bytes
            .chunks(((exponent + fraction + 1) / 8) as usize)
            .map(|b| small(if b.len() == 2 { u16::from_ne_bytes([b[0], b[1]]) as u32 } else { b[0] as u32 },
                           exponent, fraction))
            .collect(),
    }
}

fn check<T>(title: &str, array: &[T], offset: usize, bytes: usize, kind: Kind, tolerance: f64) {
    assert_eq!(core::mem::size_of_val(array), bytes, "{}", title);
    let contents = unsafe { core::slice::from_raw_parts(array.as_ptr() as *const u8, bytes) };
    let (actual, expected) = (values(contents, kind), values(&GOLDEN[offset..offset + bytes], kind));
    for (k, (a, b)) in actual.iter().zip(&expected).enumerate() {
        let is_close = a == b
            || (a.is_nan() && b.is_nan())
            || (b.is_finite() && (a - b).abs() <= tolerance * b.abs().max(1.0));
        assert!(is_close, "{}: number {} is {}, {} is expected", title, k, a, b);
    }
}

$tests
""")
INCLUDE_CONSTANTS = Template("""
static CONSTANTS: &$crate::Aligned<[u8; $crate::CONSTANTS_BYTES]> =
    &$crate::Aligned(*include_bytes!("../$file"));
""")
GOLDEN_RUN = Template("""\
#[test]
fn $test() {
    let mut memory = vec![0u8; $memory];
    #[allow(unused_mut)]
    let mut model = Model::new(&mut memory$most).unwrap();
$constants$sizes$fill    for _ in 0..$times {
        model.$run().unwrap();
    }
$checks}
""")
GOLDEN_CONSTANTS = """\
    assert!(model.set_constants(&CONSTANTS.0[..64]).is_err());
    model.set_constants(&CONSTANTS.0).unwrap();
"""
GOLDEN_SIZES = Template("    model.set_sizes([$values]).unwrap();\n")
FILL = Template("    fill(model.${which}_mut(), $offset, $bytes);\n")
CHECK = Template('    check("$which", model.$which(), $offset, $bytes, Kind::$kind, $tolerance);\n')
