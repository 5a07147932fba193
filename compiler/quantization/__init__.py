"""Post-training quantisation: contractions with constant weights computed in 8-bit integers.

    x = f32[...]                                 q = u8[...] convert(round(x / s + z))
    y = f32[...] convolution(x, w)        =>     a = s32[...] convolution(q, w8)
                                                 y = f32[...] convert(a) * (s * s_w) + ...

The ops around them stay what they are, so that a kernel ends with them: scale, bias, activation and the conversion to
the 8 bits of the next layer are the epilogue of the integer product. `layers` finds the contractions, `calibration`
observes what they read, `rewrite` makes the module, `report` says how far its values are from the first one's.
"""
