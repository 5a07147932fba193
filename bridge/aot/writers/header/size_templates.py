"""The text of what headers have besides for sizes that change, with `$name` where a model's own things go."""

from __future__ import annotations

from string import Template

# What all models with such sizes share.
ARITHMETIC = """\
#ifndef TFBRIDGE_SIZES
#define TFBRIDGE_SIZES

/* Rounded down. */
static inline int64_t tfbridge_quotient(int64_t a, int64_t b) {
    int64_t quotient = b ? a / b : 0;
    return quotient - (b && quotient * b != a && (a < 0) != (b < 0));
}

static inline int64_t tfbridge_larger(int64_t a, int64_t b) { return a > b ? a : b; }

static inline size_t tfbridge_count(int64_t number) { return TFBRIDGE_CAST(size_t, tfbridge_larger(number, 0)); }

static inline size_t tfbridge_aligned(size_t bytes) { return (bytes + 63) / 64 * 64; }

#endif
"""
SIZES = Template("""\
/* Sizes that change. A model has those of its next run in `sizes`, at the places that are told here; functions want a
 * list of all of them.
$listed
 */
#define ${NAME}_SIZES $count
$places
""")
PLACE = Template("#define ${NAME}_SIZE_${SIZE} $place")
FIELDS = Template("""\
    int64_t sizes[${NAME}_SIZES];  /* of the next run; at first the largest */
""")
MOST_FIELD = Template("""\
    int64_t most[${NAME}_SIZES];   /* what the memory is for */
""")
# An array whose dims change; `elements` is a number of them.
ARRAY = Template("""\
/* $description */
static inline int64_t ${c_which}_dim(const int64_t *sizes, int axis) {
    (void)sizes;
    switch (axis) {
$dim_cases
    default: return 0;
    }
}
static inline size_t ${c_which}_elements(const int64_t *sizes) { return tfbridge_count($elements); }
static inline size_t ${c_which}_bytes(const int64_t *sizes) { return ${c_which}_elements(sizes) * $item_bytes; }
""")
DIM_CASE = Template("    case $axis: return $dim;")
# Of models some of whose sizes have no bound.
MEMORY = Template("""\
/* The temporary memory of runs with such sizes. */
static inline size_t ${name}_temp_bytes(const int64_t *sizes) {
    int64_t most = $fixed_temp;
    (void)sizes;
$temps
    return tfbridge_count(most);
}

/* Memory that ${name}_init wants for runs with sizes up to these: arrays, temporary memory, what aligning takes. */
static inline size_t ${name}_memory_bytes(const int64_t *most) {
    return $fixed_bytes$array_bytes + tfbridge_aligned(${name}_temp_bytes(most));
}
""")
TEMP = Template("    most = tfbridge_larger(most, $bytes);")
ARRAY_BYTES = Template(" + tfbridge_aligned(${c_which}_bytes(most))")
INIT_MOST = """\
    memcpy(self->most, most, sizeof self->most);
    memcpy(self->sizes, most, sizeof self->sizes);
"""
INIT_SIZE = Template("    self->sizes[$place] = $most;\n")
GIVE_SIZES = "    context->sizes = self->sizes;\n"
CHECK_SIZE = Template("""\
    if (self->sizes[$place] < 0 || self->sizes[$place] > $most)
        return ${name}_fail(self, "$size is not between 0 and $bound");
""")
CHECK_MEMORY = Template("""\
    if (${function}(self->sizes) > ${function}(self->most))
        return ${name}_fail(self, "the model's memory is for smaller sizes: $what");
""")
METHODS = Template("""\
    /* $description */
    $type *$which() { return $c_which(&model_); }
    int64_t ${which}_dim(int axis) const { return ${c_which}_dim(model_.sizes, axis); }
    size_t ${which}_elements() const { return ${c_which}_elements(model_.sizes); }
    size_t ${which}_bytes() const { return ${c_which}_bytes(model_.sizes); }
""")
COPY_METHOD = Template("""\
    void set_$which(const $type *values) { memcpy($which(), values, ${which}_bytes()); }
""")
ELEMENT_METHOD = Template("""\
    $type &$which($indices) { return $which()[TFBRIDGE_CAST(size_t, $position)]; }
""")
SIZE_METHODS = Template("""\
    int64_t *sizes() { return model_.sizes; }
    const int64_t *sizes() const { return model_.sizes; }
""")
SIZE_METHOD = Template("""\
    void set_size_$size(int64_t value) { model_.sizes[$place] = value; }
""")
