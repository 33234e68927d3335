"""Makes blocks.json: a few blocks of random bytes of every kind, and the numbers that PyPI's `gguf` reads from them.

Usage: python blocks.py > blocks.json   (with numpy and gguf installed)
"""

import json

import gguf
import numpy as np

# kind: where its half-precision scales lie in a block
SCALES = {
    "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
    "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208],
}
rng = np.random.default_rng(20)
cases = []
for name, places in SCALES.items():
    kind = gguf.GGMLQuantizationType[name]
    numbers, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (3 if numbers == 32 else 2, size), dtype=np.uint8)
    for block in blocks:
        for place in places:
            block[place:place + 2] = np.frombuffer(np.float16(rng.normal(0, 0.05)).tobytes(), np.uint8)
    numbers = gguf.quants.dequantize(blocks, kind).astype("<f4")
    cases.append({"code": int(kind), "name": name, "bytes": blocks.tobytes().hex(), "numbers": numbers.tobytes().hex()})
print(json.dumps(cases, indent=0))
