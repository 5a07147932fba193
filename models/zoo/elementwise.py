"""Elementwise functions and row reductions: option prices, normalised rows, and one where only the call counts."""

from __future__ import annotations

import math

import numpy as np
import tensorflow as tf

from ..program import Program


def black_scholes(options: int = 1 << 20) -> Program:
    """Prices of European calls and puts.

    Shapes: spot, strike, years: f32[options] -> call, put: f32[options].
    Source: F. Black and M. Scholes, The Pricing of Options and Corporate Liabilities, 1973.
    """
    random = np.random.default_rng(1)
    inputs = [
        random.uniform(low, high, options).astype(np.float32)
        for low, high in ((10.0, 50.0), (10.0, 50.0), (0.25, 2.0))
    ]
    return Program(_prices, inputs)


def _prices(spot: tf.Tensor, strike: tf.Tensor, years: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
    rate, volatility = 0.02, 0.3
    deviation = volatility * tf.sqrt(years)
    first = (tf.math.log(spot / strike) + (rate + 0.5 * volatility * volatility) * years) / deviation
    discounted = strike * tf.exp(-rate * years)
    call = spot * _normal(first) - discounted * _normal(first - deviation)
    return call, call - spot + discounted


def _normal(value: tf.Tensor) -> tf.Tensor:
    """The standard normal distribution function."""
    return 0.5 * (1.0 + tf.math.erf(value * math.sqrt(0.5)))


def launch(elements: int = 8) -> Program:
    """Shapes: f32[elements] -> f32[elements]."""
    numbers = np.linspace(-2, 2, elements, dtype=np.float32)
    return Program(lambda x: tf.nn.relu(x * 2.0 + 1.0) - 0.5, [numbers])


def layernorm_gelu_softmax(rows: int = 1024, columns: int = 768) -> Program:
    """Layer normalisation, the exact gelu and softmax of every row.

    Shapes: x: f32[rows, columns], scale, shift: f32[columns] -> f32[rows, columns].
    """
    random = np.random.default_rng(1)

    def function(x: tf.Tensor, scale: tf.Tensor, shift: tf.Tensor) -> tf.Tensor:
        mean, variance = tf.nn.moments(x, -1, keepdims=True)
        return tf.nn.softmax(tf.nn.gelu((x - mean) * tf.math.rsqrt(variance + 1e-6) * scale + shift))

    return Program(
        function,
        [
            random.standard_normal(dims, dtype=np.float32)
            for dims in ((rows, columns), (columns,), (columns,))
        ],
    )
