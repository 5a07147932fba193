"""Strings and lookup tables around numbers: split, hash, look up, embed, pool, print as text."""

import numpy as np
import tensorflow as tf


def run(compiled=tf.function) -> dict:
    keys = tf.constant(["one", "two", "three", "four"])
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, tf.constant([1, 2, 3, 4])), 0)
    counts = tf.lookup.experimental.MutableHashTable(tf.string, tf.int64, 0)
    embedding = tf.Variable(np.linspace(-1, 1, 25).reshape(5, 5).astype("f4"))

    @compiled
    def f(lines):
        tokens = tf.strings.split(tf.strings.lower(lines))
        ids = table.lookup(tokens.flat_values)
        counts.insert(tokens.flat_values, tf.ones_like(ids, tf.int64))
        vectors = tf.gather(embedding, ids)
        vectors = vectors * tf.nn.sigmoid(vectors) - tf.reduce_mean(vectors, 0)
        pooled = tf.math.segment_mean(vectors, tokens.value_rowids())
        hashed = tf.strings.to_hash_bucket_fast(lines, 100)
        score = tf.reduce_sum(pooled, 1) / tf.sqrt(tf.cast(hashed, tf.float32) + 1.0)
        return pooled, score, tf.strings.as_string(tf.cast(score * 100.0, tf.int32)), tf.strings.length(lines)

    pooled, score, text, length = f(tf.constant(["One two", "THREE", "four five six", "two two one"]))
    return {
        "pooled": pooled.numpy(),
        "score": score.numpy(),
        "text": text.numpy().astype(int),
        "length": length.numpy(),
        "count": counts.size().numpy(),
    }
