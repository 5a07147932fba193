"""One step of a GPT-style decoder: a token goes in, its key and value join the cache, scores of the next token come
out."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from ..program import Program


def decode(
    layers: int = 6, width: int = 512, heads: int = 8, cache: int = 256, vocabulary: int = 8192
) -> Program:
    """The step at three quarters of the cache.

    Shapes: token: s32[1], position: s32[], per layer keys and values: f32[cache, width]
    -> scores: f32[1, vocabulary], per layer keys and values with the row at `position` replaced.
    """
    random = np.random.default_rng(1)

    def weights(*dims: int) -> tf.Variable:
        return tf.Variable(random.normal(0, 0.02 if len(dims) > 1 else 0.1, dims).astype(np.float32))

    embedding, places = weights(vocabulary, width), weights(cache, width)
    blocks = [
        {
            "scale": weights(2, width),
            "shift": weights(2, width),
            "attention": weights(width, 3 * width),
            "attention_bias": weights(3 * width),
            "leave": weights(width, width),
            "leave_bias": weights(width),
            "grow": weights(width, 4 * width),
            "grow_bias": weights(4 * width),
            "shrink": weights(4 * width, width),
            "shrink_bias": weights(width),
        }
        for _ in range(layers)
    ]

    def normal(x: tf.Tensor, block: dict[str, tf.Variable], which: int) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return (x - mean) * tf.math.rsqrt(variance + 1e-5) * (1 + block["scale"][which]) + block["shift"][
            which
        ]

    def split(rows: tf.Tensor) -> tf.Tensor:
        """[n, width] -> [heads, n, width / heads]"""
        return tf.transpose(tf.reshape(rows, [-1, heads, width // heads]), [1, 0, 2])

    def step(token: tf.Tensor, position: tf.Tensor, *caches: tf.Tensor) -> tuple[tf.Tensor, ...]:
        place = tf.reshape(position, [1, 1])
        seen = tf.where(tf.range(cache) <= position, 0.0, -1e9)
        x = tf.gather(embedding, token) + tf.gather(places, tf.reshape(position, [1]))
        updated = []
        for block, keys, values in zip(blocks, caches[::2], caches[1::2]):
            projected = tf.matmul(normal(x, block, 0), block["attention"]) + block["attention_bias"]
            query, key, value = tf.split(projected, 3, axis=1)
            keys = tf.tensor_scatter_nd_update(keys, place, key)
            values = tf.tensor_scatter_nd_update(values, place, value)
            scores = tf.matmul(split(query), split(keys), transpose_b=True) * (width // heads) ** -0.5
            attended = tf.matmul(tf.nn.softmax(scores + seen), split(values))
            joined = tf.reshape(tf.transpose(attended, [1, 0, 2]), [1, width])
            x += tf.matmul(joined, block["leave"]) + block["leave_bias"]
            hidden = tf.nn.gelu(
                tf.matmul(normal(x, block, 1), block["grow"]) + block["grow_bias"], approximate=True
            )
            x += tf.matmul(hidden, block["shrink"]) + block["shrink_bias"]
            updated += [keys, values]
        return (tf.matmul(x, embedding, transpose_b=True), *updated)

    caches = [random.standard_normal((cache, width), dtype=np.float32) for _ in range(2 * layers)]
    inputs = [np.array([7], np.int32), np.array(cache * 3 // 4, np.int32), *caches]
    return Program(step, inputs, [embedding, places, *(w for block in blocks for w in block.values())])
