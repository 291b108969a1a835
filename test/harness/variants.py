"""Variants of a device IR document that must be as right as it is: awkward inputs and strides, tiny sizes, other configs."""

import json
import random
import re

import numpy as np

from device_ir import DTYPES, FLOATS, Document, rounded_array

SPECIAL = [np.nan, np.inf, -np.inf, -0.0]


def sprinkle(document, storages, seed):
    """NaN, infinities and negative zero in the floating point tensors; one of thirty elements."""
    rng = np.random.default_rng(seed)
    for name, (dtype, _, _) in document.tensors.items():
        data = storages[name]
        if dtype not in FLOATS or not len(data):
            continue
        at = rng.random(len(data)) < 1 / 30
        data[at] = rounded_array(rng.choice(SPECIAL, at.sum()), DTYPES[dtype])


def strided(text):
    """The host tensors with padded rows, or with their dimensions in the opposite order in memory."""
    count = 0

    def change(m):
        nonlocal count
        sizes, strides = ([x.strip() for x in m[i].split(",") if x.strip()] for i in (2, 4))
        if len(sizes) < 2 or not all(x.isdigit() and x != "0" for x in sizes + strides):
            return m[0]
        count += 1
        order = sorted(range(len(sizes)), key=lambda i: -int(strides[i]))  # outermost first
        if count % 2:
            order = order[::-1]
        made, step = [0] * len(sizes), 1 if count % 3 else 2
        for i in reversed(order):
            made[i] = step
            step *= int(sizes[i])
            step += 3 if count % 2 else 8
        return f"{m[1]}{m[2]}{m[3]}{', '.join(map(str, made))}{m[5]}"

    return re.sub(r"^(host_tensor \S+ \w+\[)(.*?)(\] strides \[)(.*?)(\])$", change, text, flags=re.M)


def wide(text):
    """The host tensors with an outermost stride so large that their last elements lie beyond 2^31 elements, as many as fit in
    48 GiB; indices of 64 bits. None where no tensor can be spread so."""
    taken = 0

    def change(m):
        nonlocal taken
        sizes, strides = ([x.strip() for x in m[i].split(",") if x.strip()] for i in (2, 4))
        if not all(x.isdigit() for x in sizes + strides) or "0" in sizes + strides:
            return m[0]
        outermost = max(range(len(sizes)), key=lambda i: (int(sizes[i]) > 1, int(strides[i])), default=None)
        if outermost is None or sizes[outermost] == "1":
            return m[0]
        width = {"64": 8, "32": 4, "16": 2}.get(re.search(r"\d+", m[1].rsplit(" ", 1)[1])[0], 1)
        if taken + width > 24:  # in units of 2 GiB
            return m[0]
        taken += width
        strides[outermost] = str((2**31 // (int(sizes[outermost]) - 1) // 64 + 1) * 64)
        return f"{m[1]}{m[2]}{m[3]}{', '.join(strides)}{m[5]}"

    text = re.sub(r"^(host_tensor \S+ \w+\[)(.*?)(\] strides \[)(.*?)(\])$", change, text, flags=re.M)
    return re.sub(r"^setting index_dtype .*$", "setting index_dtype i64", text, flags=re.M) if taken else None


def size_symbols(d):
    """The parameters that are the size of a tensor and of nothing else: of them a call may choose any value."""
    sizes = {s for _, sizes, _ in d.tensors.values() for s in sizes}
    found = [n for n, (kind, origin, _, _) in d.symbols.items() if kind == "int" and origin == "parameter" and n in sizes]
    others = [n for n, (kind, origin, _, _) in d.symbols.items() if kind == "int" and origin == "parameter" and n not in sizes]
    fixed = any(d.blocks[b].size.isdigit() for g in d.graphs.values() if g.kind == "root" for b in g.blocks)
    return found if not others and not fixed else []  # a fixed grid goes with fixed sizes


def configured(text, number):
    """The document with config `number` of an endless seeded sequence; its own tile sizes change where they may."""
    d = Document(text)
    rng = random.Random(f"{d.kernel} {number}")
    config = dict(d.config)
    text = resized(text, d, config, rng)
    roots = [g for g in d.graphs.values() if g.kind == "root"]
    loops = [g for g in d.graphs.values() if g.kind == "loop" and g.blocks]
    several = [g for g in roots if len(g.blocks) > 1]
    if len({g.phase for g in roots}) == 1:
        config["pid_type"] = rng.choice(["flat", "xyz", "persistent_blocked", "persistent_interleaved"] if len(roots) == 1 else
                                        ["flat", "persistent_blocked", "persistent_interleaved"])
        if config["pid_type"].startswith("persistent"):
            config["num_sm_multiplier"] = rng.choice([1, 2, 4])
    if "loop_orders" in config:
        config["loop_orders"] = [rng.sample(order, len(order)) for order in config["loop_orders"]]
    elif len(several) == len(roots) == 1:
        config["loop_orders"] = [rng.sample(range(len(roots[0].blocks)), len(roots[0].blocks))]
    config["l2_groupings"] = [rng.choice([1, 1, 2, 4, 8]) for _ in several]
    if several:
        config["flatten_loops"] = [rng.random() < 0.3 for _ in several]
    nodes = len(re.findall(r"memory_ops_(?:load|store)\(", text))
    config["indexing"] = [rng.choice(["pointer", "block_ptr", "tensor_descriptor"]) for _ in range(nodes)]
    config["load_eviction_policies"] = [rng.choice(["", "first", "last"]) for _ in range(len(re.findall(r"memory_ops_load\(", text)))]
    ranges = len(roots) + len(loops)
    config["range_unroll_factors"] = [rng.choice([0, 0, 1, 2, 4]) for _ in range(ranges)]
    config["range_num_stages"] = [rng.choice([0, 0, 1, 2, 3, 4]) for _ in range(ranges)]
    for key in ("range_multi_buffers", "range_flattens"):
        config[key] = [rng.choice([None, None, True, False]) for _ in range(ranges)]
    config["num_warps"] = rng.choice([1, 2, 4, 8])
    config["num_stages"] = rng.choice([1, 2, 3, 4])
    return re.sub(r"^config .*$", lambda m: "config " + json.dumps(config), text, count=1, flags=re.M)


def resized(text, d, config, rng):
    """Halves or doubles tiles that are the config's to choose. Those of 16 lanes stay as wide: products need them."""
    tiles = [b for b in d.blocks.values() if b.kind == "tile" and b.block_size.isdigit() and not b.variable.isdigit()]
    chosen = config.get("block_sizes", [])
    if [int(b.block_size) for b in tiles] != chosen:
        return text
    lanes = int(np.prod(chosen, dtype=np.int64))
    for i, b in enumerate(tiles):
        old = int(b.block_size)
        new = rng.choice([old, old // 2, old * 2])
        if not any(b.id in g.blocks for g in d.graphs.values()):
            continue  # a size of the program's own
        if old < 4 or (old >= 16) != (new >= 16) or new > 128 and new > old or lanes // old * new > 16384 and new > old:
            continue
        lanes = lanes // old * new
        chosen = chosen[:i] + [new] + chosen[i + 1 :]
        text = re.sub(rf"^(block {b.id} .* tile block_size ){old}(?=$| )", rf"\g<1>{new}", text, flags=re.M)
    config["block_sizes"] = chosen
    return text
