"""The text of the headers, with `$name` where a model's own things go."""

from __future__ import annotations

from string import Template

# What all models of a program share.
RUNTIME = Template("""\
#ifndef TFBRIDGE_RUNTIME
#define TFBRIDGE_RUNTIME $abi  /* the version of what headers and objects agree about */

/* Casts that neither language warns of. */
#ifdef __cplusplus
#define TFBRIDGE_CAST(type_, value_) static_cast<type_>(value_)
#define TFBRIDGE_ADDRESS(pointer_) reinterpret_cast<uintptr_t>(pointer_)
#define TFBRIDGE_ARRAY(type_, pointer_) static_cast<type_ *>(const_cast<void *>(pointer_))
#else
#define TFBRIDGE_CAST(type_, value_) ((type_)(value_))
#define TFBRIDGE_ADDRESS(pointer_) ((uintptr_t)(pointer_))
#define TFBRIDGE_ARRAY(type_, pointer_) ((type_ *)(uintptr_t)(pointer_))
#endif

/* Elements that C has no type for. */
typedef struct { float re, im; } tfbridge_complex64;
typedef struct { double re, im; } tfbridge_complex128;
typedef uint16_t tfbridge_float16;   /* IEEE binary16, as bits */
typedef uint16_t tfbridge_bfloat16;  /* the upper half of a float, as bits */
typedef uint8_t tfbridge_float8;     /* 8 bits or fewer, as bits */

/* Works on [low, high) of a parallel loop; `thread` is below the model's THREADS, and no two calls that run at the
   same time have the same one. */
typedef void (*tfbridge_body)(void *state, int64_t low, int64_t high, int64_t thread);

/* A program's own thread pool: calls `body` until all of [0, tasks) is done, in parts of about `grain` or more, and
   returns when all calls have. */
typedef void (*tfbridge_parallel_for)(void *pool, int64_t tasks, int64_t grain, tfbridge_body body, void *state);

typedef struct tfbridge_context tfbridge_context;
typedef void (*tfbridge_kernel)(tfbridge_context *context, void *buffers, int64_t low, int64_t high, int64_t thread);

/* What compiled code is told besides its arrays. */
struct tfbridge_context {
$fields
};

typedef struct { tfbridge_parallel_for parallel_for; void *pool; } tfbridge_pool;
typedef struct { tfbridge_context *context; tfbridge_kernel kernel; void *buffers; } tfbridge_launch;

static inline void tfbridge_run_launch(void *state, int64_t low, int64_t high, int64_t thread) {
    tfbridge_launch *launch = TFBRIDGE_CAST(tfbridge_launch *, state);
    launch->kernel(launch->context, launch->buffers, low, high, thread);
}

static inline void tfbridge_launch_on_pool(tfbridge_context *context, tfbridge_kernel kernel, void *buffers,
                                           int64_t tasks, int64_t grain) {
    tfbridge_launch launch;
    tfbridge_pool *pool = TFBRIDGE_CAST(tfbridge_pool *, context->pool);
    launch.context = context;
    launch.kernel = kernel;
    launch.buffers = buffers;
    pool->parallel_for(pool->pool, tasks, grain, tfbridge_run_launch, &launch);
}

/* Whether an address is NULL, or no multiple of so many bytes. */
static inline int tfbridge_is_misplaced(const void *array, size_t bytes) {
    return !array || TFBRIDGE_ADDRESS(array) % bytes;
}

#elif TFBRIDGE_RUNTIME != $abi
#error "$name.h and a header before it are from incompatible versions of tfbridge: export both models again"
#endif
""")

HEADER = Template("""\
/* $name.h: a model compiled by tfbridge $version; link $file$libraries.
 *
 * Target: $target
$array_lists
 *
 * Arrays are row-major. A $model may be used by one thread at a time; any number of them may run at once.
 */
#ifndef $GUARD
#define $GUARD

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#if __STDC_HOSTED__
#include <stdlib.h>
#include <string.h>
#else  /* what every C compiler wants of a program without a library */
#ifdef __cplusplus
extern "C" {
#endif
void *memcpy(void *, const void *, size_t);
void *memset(void *, int, size_t);
int memcmp(const void *, const void *, size_t);
#ifdef __cplusplus
}
#endif
#endif
$runtime
/* Of all that was compiled: the object's functions, and the weights outside of it, have it too. */
#define ${NAME}_HASH "$hash"
#define ${NAME}_STATES $states
#define ${NAME}_STATE_BYTES TFBRIDGE_CAST(size_t, $state_bytes)
#define ${NAME}_THREADS $threads
#define ${NAME}_CONSTANTS_BYTES TFBRIDGE_CAST(size_t, $constants_bytes)
/* What a run takes of the stack at most, without functions of the C library. */
#define ${NAME}_STACK_BYTES TFBRIDGE_CAST(size_t, $stack_bytes)
$memory_constants
$buffer_constants
$size_functions
#ifdef __cplusplus
extern "C" {
#endif
/* The compiled code. Names end in a number of their own, which the object of another compilation does not have.
   Arrays lie at multiples of their elements' size, temp at one of 64. 0: done. */
$entries$weights
#ifdef __cplusplus
}
#endif

/* A model and where its arrays lie. Pointers may be turned to memory of your own between runs: no copies then. */
typedef struct {
$array_fields
    void *temp;
    const void *constants;  /* those of a file, at a multiple of 64; unused when they lie in the object */
    tfbridge_pool pool;
    uint64_t rng_state[2];  /* the seed of random numbers that have none of their own */
    char error[256];
$state_fields$size_fields} $model;

/* Puts the arrays into `memory` of $memory_of_most, which must outlive the model. */
static inline void ${name}_init($model *self, void *memory$and_most) {
    char *at = TFBRIDGE_CAST(char *, memory) + (64 - TFBRIDGE_ADDRESS(memory) % 64) % 64;
    memset(self, 0, sizeof *self);
    self->rng_state[0] = 1;
    self->rng_state[1] = 2;
$set_weights$set_sizes    if (!memory) return;
$placing
}

#if __STDC_HOSTED__
/* A model with memory of its own; NULL when there is none left. Give it back with ${name}_free. */
static inline $model *${name}_new($most_or_void) {
    $model *self = TFBRIDGE_CAST($model *, malloc(sizeof($model) + $memory_of_most));
    if (self) ${name}_init(self, self + 1$pass_most);
    return self;
}

static inline void ${name}_free($model *self) { free(self); }
#endif

/* Lets parallel loops run on a pool; NULL: on the calling thread. Of use when ${NAME}_THREADS is above 1. */
static inline void ${name}_set_thread_pool($model *self, tfbridge_parallel_for parallel_for, void *pool) {
    self->pool.parallel_for = parallel_for;
    self->pool.pool = pool;
}
$set_constants
static inline int ${name}_fail($model *self, const char *reason) {
    size_t i;
    for (i = 0; reason[i] && i + 1 < sizeof self->error; i++) self->error[i] = reason[i];
    self->error[i] = 0;
    return -1;
}

/* What compiled code is told of a run; 0, or why there can be none. */
static inline int ${name}_begin($model *self, tfbridge_context *context) {
    self->error[0] = 0;
    if (tfbridge_is_misplaced(self->temp, 64))
        return ${name}_fail(self, "the model has no memory, or temp is not aligned to 64 bytes");
$check_constants    memset(context, 0, sizeof *context);
    if (self->pool.parallel_for) {
        context->parallel_for = tfbridge_launch_on_pool;
        context->pool = &self->pool;
    }
    context->threads = ${NAME}_THREADS;
    context->num_replicas = 1;
    context->error_message = self->error;
    context->error_capacity = sizeof self->error;
    context->rng_state = self->rng_state;
    context->constants = self->constants;
$give_sizes    return 0;
}
$state_functions
$run_functions
/* Why the last run failed; empty when it did not. */
static inline const char *${name}_error_message(const $model *self) { return self->error; }

$buffer_functions
#ifdef __cplusplus
$namespace_open
/* The same as a class. Arrays are typed; sizes that do not change are compile-time constants. */
class $class_name {
public:
    /* In memory of $memory_of_most that outlives the object. */
    explicit $class_name(void *memory$and_most) { ${name}_init(&model_, memory$pass_most); }

#if __STDC_HOSTED__
    /* With memory of its own. When there is none left, run() fails. */
    $explicit$class_name($most) : own_(malloc($memory_of_most)) { ${name}_init(&model_, own_$pass_most); }

    ~$class_name() { free(own_); }
#endif
    $class_name(const $class_name &) = delete;
    $class_name &operator=(const $class_name &) = delete;

    static ${constexpr}size_t memory_bytes($most) { return $memory_of_most; }
    static ${constexpr}size_t temp_bytes($most) { return $temp_of_most; }
    static constexpr int threads() { return ${NAME}_THREADS; }

    /* Computes results from arguments. false: error_message() tells why. */
$run_methods
    const char *error_message() const { return ${name}_error_message(&model_); }
    void set_thread_pool(tfbridge_parallel_for parallel_for, void *pool) {
        ${name}_set_thread_pool(&model_, parallel_for, pool);
    }
$set_constants_method$reset_method$size_methods    $model *c_model() { return &model_; }

$buffer_methods
private:
    $model model_;
#if __STDC_HOSTED__
    void *own_ = nullptr;
#endif
};
$namespace_close
#endif

#endif
""")

MEMORY_CONSTANTS = Template("""\
#define ${NAME}_TEMP_BYTES TFBRIDGE_CAST(size_t, $temp_bytes)
/* Memory that ${name}_init wants: the arrays, the temporary memory, and what aligning them takes. */
#define ${NAME}_MEMORY_BYTES TFBRIDGE_CAST(size_t, $memory_bytes)
""")

# One function of a model: `call` begins its names in C, `args` and `results` are the members with its arrays.
ENTRY = Template(
    "int32_t $entry(tfbridge_context *context, const void *const *args, void *const *results, void *temp);"
)
COUNTS = Template("""\
#define ${CALL}_ARGS $arg_count
#define ${CALL}_RESULTS $result_count""")
ARRAY_FIELDS = Template("""\
    const void *$args[$arg_slots];
    void *$results[$result_slots];""")
RUN = Template("""\
/* Computes the results from the arguments. 0: done, else ${name}_error_message tells. */
static inline int ${call}_run($model *self) {
    tfbridge_context context;
$ensure_state    if (${name}_begin(self, &context)) return -1;
$check_arrays$check_sizes    return $entry(&context, self->$args, self->$results, self->temp);
}
""")
RUN_METHOD = Template("    bool $run() { return ${call}_run(&model_) == 0; }")

CHECK_ARRAY = Template("""\
    if (tfbridge_is_misplaced(self->$member, $bytes))
        return ${name}_fail(self, "$which is NULL or not aligned to $bytes bytes");
""")

# For models whose constants lie in C source.
WEIGHTS = Template("""
/* The weights, in ${name}_weights.c. */
extern const uint64_t $symbol[$words];
""")
SET_WEIGHTS = Template("    self->constants = $symbol;\n")
# For models whose constants lie outside of the object.
SET_CONSTANTS = Template("""
/* Tells where the weights lie: ${NAME}_CONSTANTS_BYTES at a multiple of 64, read, mapped or in flash. */
static inline void ${name}_set_constants($model *self, const void *constants) { self->constants = constants; }
""")
SET_CONSTANTS_METHOD = Template("""\
    void set_constants(const void *constants) { ${name}_set_constants(&model_, constants); }
""")
CHECK_CONSTANTS = Template("""\
    if (!self->constants || TFBRIDGE_ADDRESS(self->constants) % 64)
        return ${name}_fail(self, "the weights, $file, are not set, or not at a multiple of 64");
    if (memcmp(TFBRIDGE_CAST(const char *, self->constants) + ${NAME}_CONSTANTS_BYTES - 64, "$digest", $digest_bytes))
        return ${name}_fail(self, "$file is not the one that was written with $name.h");
""")

# For models with a state.
STATE_FIELDS = """\
    void *state;            /* all its arrays, one behind the other */
    bool has_state;         /* it has been reset, or set */
"""
STATE = Template("""
/* Gives the state its first values. 0: done. The first run does so by itself. */
static inline int ${name}_reset($model *self) {
    tfbridge_context context;
    const void *no_args[1] = {NULL};
    void *state_arrays[${NAME}_STATES];
    if (${name}_begin(self, &context)) return -1;
$state_places
    if ($reset_entry(&context, no_args, state_arrays, self->temp)) return -1;
    self->has_state = true;
    return 0;
}

/* Copies the state, ${NAME}_STATE_BYTES, to memory of yours or from there: to save it, or to go back to it. */
static inline int ${name}_get_state($model *self, void *memory) {
    if (!self->has_state && ${name}_reset(self)) return -1;
    memcpy(memory, self->state, ${NAME}_STATE_BYTES);
    return 0;
}

static inline int ${name}_set_state($model *self, const void *memory) {
    if (!self->temp) return ${name}_fail(self, "the model has no memory");
    memcpy(self->state, memory, ${NAME}_STATE_BYTES);
    self->has_state = true;
    return 0;
}
""")
ENSURE_STATE = Template("""\
    if (!self->has_state && ${name}_reset(self)) return -1;
""")
RESET_METHOD = Template("""\
    bool reset() { return ${name}_reset(&model_) == 0; }
    bool get_state(void *memory) { return ${name}_get_state(&model_, memory) == 0; }
    bool set_state(const void *memory) { return ${name}_set_state(&model_, memory) == 0; }
""")

# An argument, a result or an array of the state: `which` is its name in C++, arg0, result0 or state0 behind that of its
# function, `c_which` that in C, `at` where its address is, `called` and `c_called` those made of its own name.
SIZES = Template("""\
#define ${C_WHICH}_ELEMENTS TFBRIDGE_CAST(size_t, $elements)
#define ${C_WHICH}_BYTES TFBRIDGE_CAST(size_t, $bytes)""")
FUNCTION = Template("""\
/* $documentation */
static inline $type *$c_which(const $model *self) { return TFBRIDGE_ARRAY($type, $at); }
""")
NAMED_FUNCTION = Template("""\
static inline $type *$c_called(const $model *self) { return $c_which(self); }
""")
METHODS = Template("""\
    /* $description */
    $type *$which() { return $c_which(&model_); }
    static constexpr size_t ${which}_elements() { return ${C_WHICH}_ELEMENTS; }
    static constexpr size_t ${which}_bytes() { return ${C_WHICH}_BYTES; }
""")
SET_DATA_METHOD = Template("""\
    void set_${which}_data($pointer data) { model_.$member = data; }  /* memory of your own */
""")
COPY_METHOD = Template("""\
    template <size_t N> void set_$which(const $type (&values)[N]) {
        static_assert(N == $elements, "$which has $elements elements");
        memcpy($which(), values, sizeof values);
    }
""")
ELEMENT_METHOD = Template("""\
    $type &$which($indices) { return $which()[$position]; }
""")
NAMED_METHOD = Template("""\
    $type *$called() { return $which(); }
""")
NAMED_ELEMENT_METHOD = Template("""\
    $type &$called($indices) { return $which($index_names); }
""")
