"""Reads a device IR document and interprets it with NumPy: tile by tile, node by node, every operation as PyTorch defines it.

Knows nothing of the code generator. Floating point is computed in double precision and rounded to each node's declared type.
"""

import ast
import itertools
import json
import math
import re
import sys
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

DTYPES = {
    "f64": np.dtype(np.float64), "f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(ml_dtypes.bfloat16),
    "f8e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn), "f8e5m2": np.dtype(ml_dtypes.float8_e5m2), "i64": np.dtype(np.int64),
    "i32": np.dtype(np.int32), "i16": np.dtype(np.int16), "i8": np.dtype(np.int8), "u8": np.dtype(np.uint8), "b8": np.dtype(np.bool_),
}
TORCH = {"float64": "f64", "float32": "f32", "float16": "f16", "bfloat16": "bf16", "float8_e4m3fn": "f8e4m3fn", "float8_e5m2": "f8e5m2",
         "int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8"}
FLOATS = {"f64", "f32", "f16", "bf16", "f8e4m3fn", "f8e5m2"}
INTEGERS = {"i64", "i32", "i16", "i8", "u8"}


@dataclass
class Block:
    id: int
    variable: str
    size: str
    kind: str
    block_size: str
    parents: list


@dataclass
class Graph:
    name: str
    parameters: list = field(default_factory=list)  # (name, type)
    statements: list = field(default_factory=list)  # (name, type, expression)
    result: object = None
    kind: str = "branch"
    blocks: list = field(default_factory=list)
    phase: int = 0


class Document:
    def __init__(self, text):
        self.text = text
        header = re.split(r"^def ", text, maxsplit=1, flags=re.M)[0]
        self.kernel = re.search(r"^kernel (\S+)", header, re.M).group(1)
        self.tensors = {}
        for line in re.findall(r"^host_tensor (.*)$", header, re.M):
            name, dtype, sizes, strides = re.fullmatch(r"(\S+) (\w+)\[(.*?)\] strides \[(.*?)\]", line).groups()
            self.tensors[name] = (dtype, split(sizes), split(strides))
        self.symbols = {}
        for line in re.findall(r"^symbol (.*)$", header, re.M):
            name, kind, origin, *rest = line.split(" ", 3)
            hint = re.search(r" hint (\S+)$", line)
            expression = re.sub(r" hint \S+$", "", rest[0]) if rest else ""
            self.symbols[name] = (kind, origin, expression, hint.group(1) if hint else None)
        self.blocks = {}
        for line in re.findall(r"^block (.*)$", header, re.M):
            m = re.fullmatch(r"(\d+) (.+?) size (.+?) (tile|reduction) block_size (.+?)(?: jagged_parents \[(.*)\])?", line)
            self.blocks[int(m[1])] = Block(int(m[1]), m[2], m[3], m[4], m[5], [int(x) for x in split(m[6] or "")])
        self.config = json.loads(re.search(r"^config (.*)$", header, re.M).group(1))
        self.graphs = {}
        for piece in re.findall(r"^def .*?(?=^def |\Z)", text, re.M | re.S):
            self.read_graph(piece)
        for kind, name, rest in re.findall(r"^(root|loop|branch|helper) (\S+)(.*)$", header, re.M):
            g = self.graphs[int(re.search(r"\d+$", name).group())]
            g.kind = kind
            if blocks := re.search(r"blocks \[(.*?)\]", rest):
                g.blocks = [int(x) for x in split(blocks[1])]
            if phase := re.search(r"phase (\d+)", rest):
                g.phase = int(phase[1])
        self.block_of = {}  # a reduction over a tile's own dimension shares the tile's symbol, which means the tile
        for b in self.blocks.values():
            if b.kind == "tile" or b.variable not in self.block_of:
                self.block_of[b.variable] = b

    def read_graph(self, piece):
        function = ast.parse(piece).body[0]
        g = Graph(function.name)
        g.parameters = [(a.arg, a.annotation.value if a.annotation else None) for a in function.args.args]
        for s in function.body:
            if isinstance(s, ast.Return):
                g.result = s.value
            elif isinstance(s, ast.AnnAssign):
                g.statements.append((s.target.id, s.annotation.value, s.value))
            elif isinstance(s, ast.Assign) and not (isinstance(s.value, ast.Constant) and s.value.value is None):
                g.statements.append((s.targets[0].id, None, s.value))
        self.graphs[int(re.search(r"\d+$", function.name).group())] = g


def split(text):
    """At commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[start:i].strip())
            start = i + 1
    return parts + [text[start:].strip()] if text[start:].strip() else parts


FUNCTIONS = {
    "Min": min, "Max": max, "Mod": lambda a, b: a % b, "PythonMod": lambda a, b: a % b, "FloorDiv": lambda a, b: a // b,
    "FloatTrueDiv": lambda a, b: a / b, "ToFloat": float, "CeilDiv": lambda a, b: -(-a // b), "Eq": lambda a, b: a == b,
    "Ne": lambda a, b: a != b, "Lt": lambda a, b: a < b, "Le": lambda a, b: a <= b, "Gt": lambda a, b: a > b, "Ge": lambda a, b: a >= b,
    "And": lambda *a: all(a), "Or": lambda *a: any(a), "Not": lambda a: not a, "Where": lambda t, a, b: a if t else b,
    "inf": math.inf, "nan": math.nan,
}


def evaluate(expression, values):
    return eval(str(expression), {"__builtins__": {}}, {**FUNCTIONS, **values})


@dataclass
class Slice:
    start: object = None
    stop: object = None
    step: object = None


@dataclass
class Torch:
    name: str


@dataclass
class Value:
    """A node's value: `data` and its declared type's dimensions (as text)."""
    data: object
    dtype: str = None
    dims: tuple = ()
    node: object = None


@dataclass
class Tile:
    begin: int
    end: int
    lanes: np.ndarray
    count: int = 0
    extents: object = None  # of a jagged block: each row's end


class Interpreter:
    def __init__(self, document, storages, symbols):
        """`storages`: flat arrays by tensor name; what is stored changes them. `symbols`: the parameters' values."""
        self.d = document
        self.storages = storages
        self.symbols = dict(symbols)
        self.sizes = {v: self.block_size(b) for v, b in document.block_of.items() if not v.isdigit()}
        self.tiles = {}

    def block_size(self, b):
        if b.block_size == "None":
            return None
        others = {n for n in re.findall(r"[A-Za-z_]\w*", b.block_size) if n not in self.symbols and n in self.d.block_of}
        return int(evaluate(b.block_size, {**self.symbols, **{n: self.block_size(self.d.block_of[n]) for n in others}}))

    def is_undeclared(self, symbol):
        return symbol.isidentifier() and symbol not in self.d.symbols and symbol not in self.d.block_of

    def number(self, text):
        values = {**self.sizes, **self.symbols}
        for name, (_, origin, block, _) in self.d.symbols.items():
            if origin != "parameter" and int(block) in self.tiles:
                t = self.tiles[int(block)]
                size = self.block_size(self.d.blocks[int(block)])
                values[name] = {"grid": t.begin, "tile_begin": t.begin, "tile_end": min(t.begin + size, t.end), "tile_id": t.begin // size,
                                "tile_count": -(-t.end // size)}[origin]
        return evaluate(text, values)

    # -- tiles

    def open_tile(self, b, begin, end, extents=None):
        size = self.block_size(b)
        self.tiles[b.id] = Tile(begin, end, np.arange(begin, begin + size), extents=extents)

    def lanes(self, b):
        """The positions along a block: of its open tile, or all of a reduction dimension."""
        if b.id in self.tiles:
            return self.tiles[b.id].lanes
        return np.arange(int(self.number(b.size))) if b.kind == "reduction" else np.arange(self.block_size(b))

    def dim(self, text):
        b = self.d.block_of.get(text)
        return len(self.lanes(b)) if b is not None and not text.isdigit() else int(self.number(text))

    def valid(self, dims, axis):
        """Which lanes along `axis` of a value with these dimensions are within their block's extent; None: all."""
        b = self.d.block_of.get(dims[axis])
        if b is None or dims[axis].isdigit() or b.id not in self.tiles:
            return None
        t = self.tiles[b.id]
        shape = [1] * len(dims)
        shape[axis] = -1
        lanes = t.lanes.reshape(shape)
        if t.extents is None:
            return lanes < t.end
        where = [dims.index(self.d.blocks[p].variable) for p in b.parents]
        return lanes < np.expand_dims(t.extents, [i for i in range(len(dims)) if i not in where])

    # -- programs

    def run(self):
        for g in sorted((g for g in self.d.graphs.values() if g.kind == "root"), key=lambda g: g.phase):
            blocks = [self.d.blocks[b] for b in g.blocks]
            ends = [int(self.number(b.size)) for b in blocks]
            for begins in itertools.product(*[range(0, e, self.block_size(b)) for b, e in zip(blocks, ends)]):
                self.tiles = {}
                for b, begin, end in zip(blocks, begins, ends):
                    self.open_tile(b, begin, end)
                self.run_graph(g, [])

    def run_graph(self, g, arguments):
        env = {}
        for (name, type_), a in zip(g.parameters, arguments, strict=True):
            env[name] = a
        caller, self.graph = getattr(self, "graph", None), g.name
        for name, type_, expression in g.statements:
            try:
                v = self.statement(type_, expression, env)
            except Exception as error:
                error.add_note(f"in {g.name}: {name} = {ast.unparse(expression)}")
                raise
            if isinstance(v, Value):
                v.node = (name, expression, env)
            env[name] = v
        self.graph = caller
        return self.argument(g.result, env)

    def argument(self, e, env):
        if e is None or isinstance(e, ast.Constant):
            return None if e is None else e.value
        if isinstance(e, ast.Name):
            return {"inf": math.inf, "nan": math.nan}[e.id] if e.id in ("inf", "nan") and e.id not in env else env[e.id]
        if isinstance(e, ast.UnaryOp):
            return -self.argument(e.operand, env)
        if isinstance(e, (ast.List, ast.Tuple)):
            return [self.argument(x, env) for x in e.elts]
        if isinstance(e, ast.Attribute):
            return Torch(e.attr)
        if isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "slice":
            return Slice(*[self.argument(x, env) for x in e.args])
        if isinstance(e, ast.Call):
            return Torch("device")
        raise NotImplementedError(ast.unparse(e))

    def statement(self, type_, e, env):
        dtype, dims, symbol = self.read_type(type_)
        if symbol is not None and self.is_undeclared(symbol) and not isinstance(e, ast.Name):
            values = {n.id: scalar(env[n.id]) for n in ast.walk(e) if isinstance(n, ast.Name)}
            self.symbols[symbol] = evaluate(ast.unparse(e), values)
        if symbol is not None:
            return Value(self.number(symbol) if symbol not in self.sizes else self.sizes[symbol], None, (), None) if not isinstance(e, ast.Name) else env[e.id]
        if isinstance(e, ast.Subscript):
            v = self.argument(e.value, env)[e.slice.value]
            return Value(v.data, v.dtype, v.dims) if isinstance(v, Value) else v
        if isinstance(e, ast.Name):
            return env[e.id]
        if not isinstance(e, ast.Call):
            raise NotImplementedError(ast.unparse(e))
        name = ast.unparse(e.func)
        args = [self.argument(a, env) for a in e.args]
        kwargs = {k.arg: self.argument(k.value, env) for k in e.keywords}
        types = e.args
        name = re.sub(r"^helion_language_", "", name)
        name = re.sub(r"^_?(?:tracing_ops|memory_ops|atomic_ops|creation_ops|view_ops|tile_ops|matmul_ops|scan_ops|reduce_ops|quantized_ops|inline_asm_ops)_", "", name)
        name = re.sub(r"^_?(?:tracing_ops)_", "", name)
        name = re.sub(r"^_gelu_tanh_approx__", "_", name)
        self.call = (dtype, dims, types, env)
        if handler := getattr(self, "do_" + name.strip("_").replace("torch.ops.aten.", "").replace("torch.ops.prims.", "").split(".")[0].strip("_"), None):
            return self.wrap(handler(args, kwargs), dtype, dims)
        base = name.split(".")[3] if name.startswith("torch.ops") else name
        return self.wrap(self.pointwise(base, name, args, kwargs), dtype, dims)

    @staticmethod
    def wrap(v, dtype, dims):
        if v is None or isinstance(v, (list, Value)) or dtype is None:
            return v
        return Value(rounded(v, dtype), dtype, dims)

    def read_type(self, text):
        if text is None:
            return None, (), None
        if m := re.fullmatch(r"Sym\((.*)\)", text):
            return None, (), m[1]
        m = re.fullmatch(r"(\w+)\[(.*)\]", text)
        return m[1], tuple(split(m[2])), None

    # -- symbols and control flow

    def do_host_tensor(self, args, kwargs):
        return Value(args[0], "host", ())

    def do_get_symnode(self, args, kwargs):
        if m := re.fullmatch(r"rdim(\d+)", args[0]):
            return Value(int(self.number(self.d.blocks[int(m[1])].size)), None, ())
        raise NotImplementedError(args[0])

    def do_new_var(self, args, kwargs):
        return Value(args[0].data, args[0].dtype, args[0].dims)

    def do_phi(self, args, kwargs):
        return Value(args[1].data, args[1].dtype, args[1].dims) if isinstance(args[1], Value) else args[1]

    def do_for_loop(self, args, kwargs):
        graph, begins, ends, carried = args[:4]
        g = self.d.graphs[graph]
        blocks = [self.d.blocks[b] for b in g.blocks]
        begins = [int(scalar(x)) for x in begins]
        extents = [self.jagged(x) if b.parents else None for x, b in zip(ends, blocks)]
        ends = [int(scalar(x)) for x in ends]
        phis = self.carried_results(g, len(carried))
        result = None
        saved = dict(self.tiles)
        if all(b.kind == "reduction" for b in blocks):  # rolled: one chunk is as good
            result = self.run_graph(g, carried)
        else:
            values = list(carried)
            for offsets in itertools.product(*[range(b, e, self.block_size(k)) for b, e, k in zip(begins, ends, blocks)]):
                for k, offset, end, extent in zip(blocks, offsets, ends, extents):
                    self.open_tile(k, offset, end, extent)
                result = self.run_graph(g, values)
                for position, parameter in phis.items():
                    values[parameter] = result[position]
        self.tiles = saved
        if result is None:  # no iteration: what is joined keeps its value
            graph_results = g.result.elts if g.result is not None else []
            result = [carried[phis[i]] if i in phis else None for i in range(len(graph_results))]
        return result

    do_for_loop_step = do_for_loop

    def do_while_loop(self, args, kwargs):
        condition, body, carried = args
        g, values, result = self.d.graphs[body], list(carried), None
        phis = self.carried_results(g, len(carried))
        while np.all(scalar(self.run_graph(self.d.graphs[condition], values)[0])):
            result = self.run_graph(g, values)
            for position, parameter in phis.items():
                values[parameter] = result[position]
        return result if result is not None else [carried[phis[i]] if i in phis else None for i in range(len(g.result.elts))]

    def carried_results(self, g, count):
        """Which result of a loop's body becomes which parameter: found from the `_phi`s that join them in the caller."""
        dtype, dims, types, env = self.call
        call = types
        found = {}
        arguments = [a.id if isinstance(a, ast.Name) else None for a in next(x for x in reversed(call) if isinstance(x, ast.List)).elts]
        for caller in self.d.graphs.values():
            for name, _, e in caller.statements:
                if not (isinstance(e, ast.Call) and "_loop" in ast.unparse(e.func) and [ast.dump(a) for a in e.args] == [ast.dump(a) for a in call]):
                    continue
                items = {n: x.slice.value for n, _, x in caller.statements if isinstance(x, ast.Subscript) and x.value.id == name}
                for _, _, x in caller.statements:
                    if isinstance(x, ast.Call) and ast.unparse(x.func).endswith("_phi") and x.args[1].id in items:
                        before = x.args[0].id
                        if before in arguments:
                            choices = [i for i, a in enumerate(arguments) if a == before and i not in found.values()]
                            if choices:
                                found[items[x.args[1].id]] = choices[0]
        return found

    def jagged(self, v):
        """The end is the maximum of a tensor: step back to it."""
        name, e, env = v.node
        while isinstance(e, ast.Call) and re.search(r"amax|max|mask_to|view|reshape", ast.unparse(e.func)) and isinstance(e.args[0], ast.Name):
            v = env[e.args[0].id]
            if not isinstance(v.data, np.ndarray) or v.node is None:
                break
            name, e, env = v.node
        return v.data

    def do_if(self, args, kwargs):
        test, then, other, then_args, other_args = args
        taken, call = bool(np.all(scalar(test))), self.call
        results = self.run_graph(self.d.graphs[then if taken else other], then_args if taken else other_args)
        self.call = call
        return self.branch_results(taken, then, other, then_args, other_args, results)

    def branch_results(self, taken, then, other, then_args, other_args, results):
        """The values come twice: after the first side, after the second. Ordered: written by both sides, by the first, by the
        second. What a side does not write keeps the value that the other side got as an argument. A side's results are all that
        it assigns, also what nobody reads behind it; names tell which belong together."""
        base = lambda n: re.sub(r"_\d+$", "", n)
        types = self.call[2]
        sides = []
        for graph, arguments, values in ((then, types[3], then_args), (other, types[4], other_args)):
            g = self.d.graphs[graph]
            names = [x.id for x in g.result.elts] if g.result is not None else []
            sides.append((g, names, [a.id for a in arguments.elts], values))
        (g, a, _, _), (h, b, _, _) = sides
        count = self.count_results() // 2
        partner, left = {}, list(range(len(b)))

        def pair(fits):
            for i, n in enumerate(a):
                for j in left:
                    if i not in partner and len(partner) < count and fits(n, b[j]):
                        partner[i] = j
                        left.remove(j)
                        break

        nameless = lambda n, m: n.startswith("_") or m.startswith("_")
        alike = lambda n, m: self.result_type(g, n) == self.result_type(h, m)
        pair(lambda n, m: not nameless(n, m) and base(n) == base(m))
        pair(lambda n, m: nameless(n, m) and alike(n, m))
        apart = [i for i in range(len(a)) if i not in partner]
        known = [self.variable_before(sides[0], i) for i in apart] + [self.variable_before(sides[1], j) for j in left]
        if len(apart) == len(left) == count - len(partner) and not any(v is not None for v in known):
            pair(alike)
        pairs = sorted(partner.items())
        pairs += [(i, None) for i in range(len(a)) if i not in [p[0] for p in pairs]]
        pairs += [(None, j) for j in left]
        out = []
        for i, j in pairs[:count]:
            mine = i if taken else j
            out.append(results[mine] if mine is not None else self.passed(sides[1] if taken else sides[0], j if taken else i))
        return out + out

    def variable_before(self, side, position):
        """The argument that a result is a copy of, or that has its name."""
        g, names, arguments, values = side
        base = lambda n: re.sub(r"_\d+$", "", n)
        name = names[position]
        for n, _, e in g.statements:
            if n == name and isinstance(e, ast.Call) and ast.unparse(e.func).endswith("new_var"):
                for (p, _), v in zip(g.parameters, values):
                    if p == e.args[0].id:
                        return v
        for a, v in zip(arguments, values):
            if base(a) == base(name):
                return v
        return None

    def passed(self, side, position):
        g, names, _, values = side
        found = self.variable_before(side, position)
        return found if found is not None else [v for v in values if isinstance(v, Value) and (v.dtype, v.dims) == self.result_type(g, names[position])][0]

    def count_results(self):
        call = [ast.dump(a) for a in self.call[2]]
        for g in self.d.graphs.values():
            for name, _, e in g.statements:
                if isinstance(e, ast.Call) and [ast.dump(a) for a in e.args] == call:
                    return 1 + max((x.slice.value for _, _, x in g.statements if isinstance(x, ast.Subscript) and x.value.id == name), default=-1)
        return 0

    def result_type(self, g, name):
        for n, type_, _ in g.statements:
            if n == name:
                return self.read_type(type_)[:2]
        return None

    def do_tile_index(self, args, kwargs):
        return self.lanes(self.block_argument(0))

    def block_argument(self, i):
        dtype, dims, types, env = self.call
        for b in self.d.blocks.values():
            if dims and b.variable == dims[0]:
                return b
        raise NotImplementedError("a block of this call")

    # -- memory

    def index(self, tensor, indices, types, env, rank, extra):
        """Flat offsets and validity of an access, of the given rank."""
        _, sizes, strides = self.d.tensors[tensor]
        sizes = [int(self.number(s)) for s in sizes]
        strides = [int(self.number(s)) if size != 1 else 0 for s, size in zip(strides, sizes)]  # every index means the one element
        parts = []
        for i, e in zip(indices, types):
            block = self.block_symbol(e, env)
            if i is None:
                parts.append(("inserted", None))
            elif isinstance(i, Slice):
                parts.append(("slice", i))
            elif block is not None:
                parts.append(("block", block))
            elif isinstance(i, Value) and isinstance(i.data, np.ndarray) and i.data.ndim:
                parts.append(("tensor", i))
            else:
                parts.append(("scalar", int(scalar(i))))
        assert sum(p[0] != "inserted" for p in parts) == len(sizes), "an index a dimension"
        ranks = [p[1].data.ndim for p in parts if p[0] == "tensor"]
        lanes = sum(p[0] in ("slice", "block", "inserted") for p in parts)
        outer = rank is not None and sum(ranks) + lanes == rank or rank is None and all(r == 1 for r in ranks)
        together = 0 if outer else max(ranks, default=0)
        total = lanes + (sum(ranks) if outer else together)
        at, first = 0, None
        offset, valid = np.zeros([1] * total, np.int64), np.ones([1] * total, bool)
        dimensions = iter(zip(sizes, strides))
        for kind, p in parts:
            if kind == "inserted":
                at += 1
                continue
            size, stride = next(dimensions)
            if kind == "scalar":
                offset = offset + (p if p >= 0 else p + size) * stride
                if not -size <= p < size and size != 1:
                    raise IndexError(f"index {p} of {tensor} is out of range: the inputs do not fit the document")
                continue
            if kind == "tensor":
                own = p.data.ndim
                if outer:
                    begin, at = at, at + own
                else:
                    if first is None:
                        first, at = at, at + together
                    begin = first + together - own
                data = p.data.astype(np.int64)
                ok = np.ones([1] * own, bool)
                for axis in range(own):
                    v = self.valid(p.dims, axis)
                    ok = ok if v is None else ok & v
            elif kind == "block":
                begin, at = at, at + 1
                data = self.lanes(p)
                v = self.valid((p.variable,), 0) if not p.parents else None
                ok = np.ones(1, bool) if v is None else v
                if p.parents:
                    ok = data < np.max(self.tiles[p.id].extents)
            else:
                begin, at = at, at + 1
                data = np.arange(size)[slice(p.start, p.stop, p.step)]
                ok = np.ones(1, bool)
            shape = [1] * begin + list(data.shape) + [1] * (total - begin - data.ndim)
            offset = offset + data.reshape(shape) * stride
            inside = (data >= 0) & (data < size) if kind != "tensor" and size != 1 else True
            good = np.broadcast_to(ok & inside, data.shape)
            if kind == "tensor":
                assert np.all((data >= 0) & (data < size) | ~good) or True
            valid = valid & good.reshape(shape)
        if extra is not None:
            valid = valid & np.asarray(extra.data)
        return np.broadcast_arrays(offset, valid)

    def block_symbol(self, e, env):
        return self.block_names.get((self.graph, e.id)) if isinstance(e, ast.Name) else None

    @property
    def block_names(self):
        """Names of nodes whose declared type is a block's size symbol."""
        if not hasattr(self, "_block_names"):
            self._block_names = {}
            for g in self.d.graphs.values():
                for name, type_, _ in g.statements:
                    m = re.fullmatch(r"Sym\((\w+)\)", type_ or "")
                    if m and m[1] in self.sizes:
                        self._block_names[g.name, name] = self.d.block_of[m[1]]
        return self._block_names

    def do_load(self, args, kwargs):
        dtype, dims, types, env = self.call
        if args[0].dtype != "host":
            return args[0].data[tuple(slice(None) if isinstance(i, Slice) else None for i in args[1])]
        extra = args[2] if len(args) > 2 else None
        offset, valid = self.index(args[0].data, args[1], types[1].elts, env, len(dims), extra)
        storage = self.storages[args[0].data]
        self.check(offset, valid, storage, args[0].data)
        return np.where(valid, storage[np.where(valid, offset, 0)], np.zeros((), storage.dtype))

    def check(self, offset, valid, storage, name):
        inside = (offset >= 0) & (offset < len(storage)) | ~valid
        if not np.all(inside):
            raise IndexError(f"an access to {name} lies outside of it: the inputs do not fit the document")

    def target(self, args, value):
        dtype, dims, types, env = self.call
        rank = value.data.ndim if isinstance(value, Value) and isinstance(value.data, np.ndarray) else 0
        extra = None
        offset, valid = self.index(args[0].data, args[1], types[1].elts, env, rank or None, extra)
        # A jagged block's rows end where the value's shape says.
        if isinstance(value, Value):
            for axis in range(len(value.dims)):
                if (v := self.valid(value.dims, axis)) is not None and len(value.dims) == offset.ndim:
                    valid = valid & v
        return np.broadcast_arrays(offset, valid)

    def do_store(self, args, kwargs):
        offset, valid = self.target(args, args[2])
        if len(args) > 3 and args[3] is not None:
            offset, valid = np.broadcast_arrays(offset, valid & np.asarray(args[3].data))
        storage = self.storages[args[0].data]
        self.check(offset, valid, storage, args[0].data)
        data = np.broadcast_to(np.asarray(args[2].data if isinstance(args[2], Value) else args[2]), offset.shape)
        storage[offset[valid]] = rounded_array(data[valid], storage.dtype)

    def do_atomic_add(self, args, kwargs):
        offset, valid = self.target(args, args[2])
        storage = self.storages[args[0].data]
        self.check(offset, valid, storage, args[0].data)
        data = np.broadcast_to(np.asarray(args[2].data if isinstance(args[2], Value) else args[2]), offset.shape)
        before = storage[np.where(valid, offset, 0)]
        total = storage.astype(np.float64 if storage.dtype.kind not in "iub" else np.int64)
        np.add.at(total, offset[valid], data[valid].astype(total.dtype))
        storage[:] = rounded_array(total, storage.dtype)
        return before

    def atomic(self, args, function):
        offset, valid = self.target(args, args[2])
        storage = self.storages[args[0].data]
        self.check(offset, valid, storage, args[0].data)
        data = np.broadcast_to(np.asarray(args[2].data if isinstance(args[2], Value) else args[2]), offset.shape)
        before = storage[np.where(valid, offset, 0)]
        for o, x in zip(offset[valid], data[valid]):
            storage[o] = function(storage[o], np.asarray(x).astype(storage.dtype))
        return before

    def do_atomic_max(self, args, kwargs): return self.atomic(args, max)
    def do_atomic_min(self, args, kwargs): return self.atomic(args, min)
    def do_atomic_and(self, args, kwargs): return self.atomic(args, lambda a, b: a & b)
    def do_atomic_or(self, args, kwargs): return self.atomic(args, lambda a, b: a | b)
    def do_atomic_xor(self, args, kwargs): return self.atomic(args, lambda a, b: a ^ b)
    def do_atomic_xchg(self, args, kwargs): return self.atomic(args, lambda a, b: b)

    def do_mask_to(self, args, kwargs):
        x, other = args
        data = x.data
        for axis in range(len(x.dims)):
            if (v := self.valid(x.dims, axis)) is not None:
                data = np.where(v, data, np.asarray(other).astype(data.dtype))
        return data

    # -- creation and views

    def shape(self, sizes, types, env):
        out = []
        for s, e in zip(sizes, types):
            block = self.block_symbol(e, env)
            out.append(len(self.lanes(block)) if block is not None else int(scalar(s)))
        return out

    def declared(self):
        return [self.dim(t) for t in self.call[1]]

    def do_full(self, args, kwargs):
        return np.full(self.declared(), scalar(args[1]))

    def do_scalar_tensor(self, args, kwargs):
        return np.asarray(scalar(args[0]))

    def do_iota(self, args, kwargs):
        return scalar(kwargs.get("start", 0)) + scalar(kwargs.get("step", 1)) * np.arange(self.declared()[0])

    def do_arange(self, args, kwargs):
        start = scalar(args[0]) if len(args) > 1 else 0
        return start + np.arange(self.declared()[0])

    def do_subscript(self, args, kwargs):
        return np.asarray(args[0].data)[tuple(slice(None) if isinstance(i, Slice) else None for i in args[1])]

    def do_view(self, args, kwargs):
        if isinstance(args[1], Torch):
            return args[0].data.view(DTYPES[TORCH[args[1].name]])
        return np.asarray(args[0].data).reshape(self.declared())

    do_reshape = do_unsqueeze = do_squeeze = do_view

    def do_permute(self, args, kwargs): return np.transpose(args[0].data, args[1])
    def do_transpose(self, args, kwargs): return np.swapaxes(args[0].data, args[1], args[2])
    def do_t(self, args, kwargs): return args[0].data.T
    def do_expand(self, args, kwargs): return np.broadcast_to(args[0].data, self.declared())
    def do_clone(self, args, kwargs): return args[0].data
    def do_stack(self, args, kwargs): return np.stack([x.data for x in args[0]], args[1] if len(args) > 1 else 0)
    def do_cat(self, args, kwargs): return np.concatenate([x.data for x in args[0]], args[1] if len(args) > 1 else 0)
    def do_join(self, args, kwargs): return np.stack([args[0].data, args[1].data], -1)
    def do_gather(self, args, kwargs): return np.take_along_axis(args[0].data, args[2].data, args[1])

    def do_split(self, args, kwargs):
        x = args[0]
        return [Value(x.data[..., i], x.dtype, x.dims[:-1]) for i in range(2)]

    def do_convert_element_type(self, args, kwargs): return args[0].data
    do_to_copy = do_convert_element_type

    # -- reductions and products

    def reduction(self, args, kwargs, function):
        x = args[0]
        dims = kwargs.get("dim", args[1] if len(args) > 1 else None)
        keep = kwargs.get("keepdim", args[2] if len(args) > 2 else False)
        dims = tuple(range(x.data.ndim)) if dims is None or dims == [] else (dims,) if isinstance(dims, int) else tuple(dims)
        return function(wide(x), dims, bool(keep))

    def do_sum(self, args, kwargs): return self.reduction(args, kwargs, lambda x, d, k: np.sum(x, axis=d, keepdims=k))
    def do_prod(self, args, kwargs): return self.reduction(args, kwargs, lambda x, d, k: np.prod(x, axis=d, keepdims=k))
    def do_amax(self, args, kwargs): return self.reduction(args, kwargs, lambda x, d, k: np.max(x, axis=d, keepdims=k))
    def do_amin(self, args, kwargs): return self.reduction(args, kwargs, lambda x, d, k: np.min(x, axis=d, keepdims=k))
    def do_any(self, args, kwargs): return self.reduction(args, kwargs, lambda x, d, k: np.any(x != 0, axis=d, keepdims=k))
    def do_all(self, args, kwargs): return self.reduction(args, kwargs, lambda x, d, k: np.all(x != 0, axis=d, keepdims=k))

    def do_max(self, args, kwargs): return self.max_min(args, kwargs, np.max, np.argmax)
    def do_min(self, args, kwargs): return self.max_min(args, kwargs, np.min, np.argmin)

    def max_min(self, args, kwargs, best, place):
        if len(args) < 2:
            return best(wide(args[0]))
        d, k = args[1], bool(args[2]) if len(args) > 2 else False
        x = args[0]
        dims = tuple(t if i != d % x.data.ndim else "1" for i, t in enumerate(x.dims) if k or i != d % x.data.ndim)
        return [Value(rounded(best(wide(x), axis=d, keepdims=k), x.dtype), x.dtype, dims), Value(place(wide(x), axis=d, keepdims=k), "i64", dims)]

    def arg(self, args, kwargs, function):
        d = args[1] if len(args) > 1 else kwargs.get("dim")
        k = bool(args[2]) if len(args) > 2 else kwargs.get("keepdim", False)
        return function(wide(args[0]), axis=d, keepdims=k) if d is not None else function(wide(args[0]))

    def do_argmax(self, args, kwargs): return self.arg(args, kwargs, np.argmax)
    def do_argmin(self, args, kwargs): return self.arg(args, kwargs, np.argmin)

    def do_inductor_lowering_extra(self, args, kwargs):
        x = args[0][0]
        return Value(x, "extra", ())

    def do_mean(self, args, kwargs):
        if extras := kwargs.get("_extra_args"):
            args = [extras[0].data] + list(args[1:])
        return self.reduction(args, {k: v for k, v in kwargs.items() if k != "_extra_args"}, lambda x, d, k: np.mean(x, axis=d, keepdims=k))

    def variance(self, args, kwargs):
        x = args[0]
        dims = tuple(args[1]) if len(args) > 1 and args[1] else tuple(range(x.data.ndim))
        keep = bool(kwargs.get("keepdim", False))
        correction = kwargs.get("correction", 1)
        valid = np.ones(x.data.shape, bool)
        for axis in range(len(x.dims)):
            if (v := self.valid(x.dims, axis)) is not None:
                valid = valid & v
        return (np.var(wide(x), axis=dims, keepdims=keep, ddof=1 if correction is None else correction), np.mean(wide(x), axis=dims, keepdims=keep))

    def do_var(self, args, kwargs): return self.variance(args, kwargs)[0]

    def do_var_mean(self, args, kwargs):
        var, mean = self.variance(args, kwargs)
        x = args[0]
        return [Value(rounded(var, x.dtype), x.dtype, x.dims), Value(rounded(mean, x.dtype), x.dtype, x.dims)]

    def do_logsumexp(self, args, kwargs):
        def function(x, d, k):
            highest = np.max(x, axis=d, keepdims=True)
            shift = np.where(np.isinf(highest), 0, highest)
            return np.log(np.sum(np.exp(x - shift), axis=d, keepdims=k)) + (shift if k else shift.reshape(np.sum(x, axis=d).shape))

        return self.reduction(args, kwargs, function)

    def do_cumsum(self, args, kwargs): return np.cumsum(wide(args[0]), axis=args[1])
    def do_cumprod(self, args, kwargs): return np.cumprod(wide(args[0]), axis=args[1])

    def order(self, x, d, descending):
        """Of a stable sort in which NaN is the greatest."""
        values, sign = wide(x), -1 if descending else 1
        return np.lexsort((sign * np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf), sign * np.isnan(values).astype(np.int8)), axis=d)

    def do_sort(self, args, kwargs):
        x, d, descending = args[0], args[1] if len(args) > 1 else -1, args[2] if len(args) > 2 else False
        order = self.order(x, d, descending)
        return [Value(np.take_along_axis(x.data, order, d), x.dtype, x.dims), Value(order, "i64", x.dims)]

    def do_topk(self, args, kwargs):
        x, k, d = args[0], args[1], args[2] if len(args) > 2 else -1
        order = self.order(x, d, True).take(range(k), axis=d)
        return [Value(np.take_along_axis(x.data, order, d), x.dtype, x.dims), Value(order, "i64", x.dims)]

    def do_mm(self, args, kwargs): return np.matmul(wide(args[0]), wide(args[1]))
    do_bmm = do_mm
    def do_addmm(self, args, kwargs): return wide(args[0]) + np.matmul(wide(args[1]), wide(args[2]))
    do_baddbmm = do_addmm

    def do_dot(self, args, kwargs):
        product = np.matmul(wide(args[0]), wide(args[1]))
        return product if len(args) < 3 or args[2] is None else product + wide(args[2])

    def do_associative_scan(self, args, kwargs):
        graph, values, dim, reverse = args[0], args[1], args[2], args[3]
        values = values if isinstance(values, list) else [values]
        n = values[0].data.shape[dim]
        order = range(n - 1, -1, -1) if reverse else range(n)
        out = [np.array(v.data) for v in values]
        so_far = None
        for i in order:
            now = [Value(np.take(v.data, i, dim), v.dtype, ()) for v in values]
            if so_far is not None:
                r = self.run_graph(self.d.graphs[graph], [*so_far, *now])
                now = r if isinstance(r, list) else [r]
            so_far = now
            for o, v in zip(out, now):
                index = [slice(None)] * o.ndim
                index[dim] = i
                o[tuple(index)] = v.data
        results = [Value(o, v.dtype, v.dims) for o, v in zip(out, values)]
        return results if len(args) > 4 and args[4] else results[0]

    def do_load_float4_e2m1fn_x16_to_float16(self, args, kwargs):
        table = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float16)
        storage, groups, mask = self.storages[args[0].data], args[1], np.asarray(args[2].data)
        where = np.where(mask, groups.data, 0)
        out = []
        for i in range(16):
            byte = storage[where * 8 + i // 2]
            nibble = (byte >> (4 * (i % 2))) & 15
            out.append(Value(np.where(mask, table[nibble], np.float16(0)), "f16", groups.dims))
        return out

    def do_inline_asm_elementwise(self, args, kwargs):
        if "e4m3x2" not in args[0]:
            raise NotImplementedError("inline assembly")
        return args[2][0].data.astype(np.uint8).view(DTYPES["f8e4m3fn"]).astype(np.float32)

    # -- pointwise

    def do_nan_to_num(self, args, kwargs):
        most = {"f64": sys.float_info.max, "f32": float(np.finfo(np.float32).max), "f16": 65504.0, "bf16": 3.3895313892515355e38, "f8e4m3fn": 448.0}
        most = most.get(self.call[0], 57344.0)
        given = {"nan": None, "posinf": None, "neginf": None} | dict(zip(("nan", "posinf", "neginf"), args[1:])) | kwargs
        numbers = {k: v if given[k] is None else given[k] for k, v in {"nan": 0.0, "posinf": most, "neginf": -most}.items()}
        return np.nan_to_num(wide(args[0]), **numbers)

    def pointwise(self, base, name, args, kwargs):
        values = [a for a in args if a is not None]
        if base == "clamp":  # a bound that is None is absent
            kwargs = {k: v for k, v in zip(("min", "max"), args[1:])} | kwargs
            args = args[:1]
        elif len(args) > 1 and any(a is None for a in args):
            args = [a if a is not None else values[0] for a in args]
        operands = [*args, *kwargs.values()]
        kind = "f" if any(isinstance(a, Value) and a.dtype in FLOATS or isinstance(a, float) or isinstance(a, Value) and isinstance(a.data, float) for a in operands) else "i"
        common = self.common_float(base, args, kind, kwargs.get("rounding_mode"))
        x = [self.operand(a, common) for a in args]
        named = {k: self.operand(v, common) for k, v in kwargs.items() if k not in ("dtype", "layout", "device", "pin_memory")}
        return POINTWISE[base](*x, **({"kind": kind} if base in ("div", "remainder", "fmod", "floor_divide") else {}), **named)

    def common_float(self, base, args, kind, rounding):
        """The type in which operands meet where one is a float: PyTorch converts an integer tile to it. None: no float."""
        if base in ("where", "masked_fill"):
            return None
        tiles = [a.dtype for a in args if isinstance(a, Value) and a.dtype is not None and np.ndim(a.data)]
        tiles = tiles or [a.dtype for a in args if isinstance(a, Value) and a.dtype is not None]
        found = sorted({t for t in tiles if t in FLOATS}, key=lambda t: DTYPES[t].itemsize)
        if not found:
            return "f32" if kind == "f" or (base in ("div", "true_divide") and not rounding) else None
        return found[-1] if len(found) == 1 or DTYPES[found[-1]].itemsize > DTYPES[found[-2]].itemsize else "f32"

    @staticmethod
    def operand(a, common):
        if not isinstance(a, Value):
            return a
        if common and a.dtype in INTEGERS and np.ndim(a.data):
            return rounded(a.data, common).astype(np.float64)
        return wide(a)


def scalar(v):
    v = v.data if isinstance(v, Value) else v
    return v.reshape(-1)[0] if isinstance(v, np.ndarray) and v.size == 1 else v


def wide(v):
    if not isinstance(v, Value) or not isinstance(v.data, (np.ndarray, np.generic)):
        return v.data if isinstance(v, Value) else v
    return v.data.astype(np.float64) if v.dtype in FLOATS else v.data.astype(np.int64) if v.dtype not in ("b8",) else v.data


def rounded_array(x, dtype):
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        if dtype.kind in "iu" and x.dtype.kind == "f":
            return np.trunc(x).astype(np.int64).astype(dtype)
        if x.dtype == np.float64 and dtype.itemsize < 4 and dtype.kind not in "iub":
            x = x.astype(np.float32)
        return x.astype(dtype)


def rounded(x, dtype):
    return rounded_array(x, DTYPES[dtype])


def trunc_divide(a, b):
    return a // b + ((a % b != 0) & ((a < 0) != (b < 0)))


def remainder(a, b, kind):
    """With the divisor's sign; a zero has the dividend's, as fmod has it."""
    rest = np.fmod(a, b)
    return np.where((rest != 0) & ((rest < 0) != (np.asarray(b) < 0)), rest + b, rest)


def divide(a, b, rounding_mode=None, kind="f"):
    with np.errstate(all="ignore"):
        if rounding_mode == "floor":
            return np.floor_divide(a, b)
        if rounding_mode == "trunc":
            return np.trunc(np.divide(a, b)) if kind == "f" else trunc_divide(np.asarray(a), np.asarray(b))
        return np.divide(a, b)


def clamp(x, min=None, max=None):
    """Of two bounds that cross the upper wins; NaN passes through, and is a bound that makes all NaN."""
    x = x if min is None else np.maximum(x, min)
    return x if max is None else np.minimum(x, max)


def round_even(x, decimals=0):
    return np.round(x) if not decimals else np.round(x * 10.0**decimals) / 10.0**decimals


def logit(x, eps=None):
    x = x if eps is None else np.clip(x, eps, 1 - eps)
    return np.log(x / (1 - x))


def shift_left(x, count):
    """Of 64 bits; the narrower of the declared type are those of them that are left."""
    return np.where((count < 0) | (count > 63), 0, np.left_shift(x, np.clip(count, 0, 63)))


def shift_right(x, count):
    return np.right_shift(x, np.where((count < 0) | (count > 63), 63, count))


erf = np.vectorize(math.erf, otypes=[float])
quiet = lambda f: lambda *a, **k: _quiet(f, *a, **k)


def _quiet(f, *a, **k):
    with np.errstate(all="ignore"):
        return f(*a, **k)


POINTWISE = {
    "add": lambda a, b, alpha=1: np.add(a, np.multiply(b, alpha) if alpha != 1 else b), "sub": lambda a, b, alpha=1: np.subtract(a, np.multiply(b, alpha)), "rsub": lambda a, b, alpha=1: np.subtract(b, np.multiply(a, alpha)),
    "mul": lambda a, b: np.logical_and(a, b) if np.asarray(a).dtype == bool and np.asarray(b).dtype == bool else np.multiply(a, b),
    "div": divide, "true_divide": divide, "floor_divide": lambda a, b, kind: np.floor_divide(a, b), "remainder": remainder, "fmod": lambda a, b, kind: np.fmod(a, b),
    "neg": np.negative, "abs": np.abs, "exp": np.exp, "exp2": np.exp2, "expm1": np.expm1, "log": np.log, "log2": np.log2, "log10": np.log10, "log1p": np.log1p,
    "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "reciprocal": lambda x: 1 / np.asarray(x), "sin": np.sin, "cos": np.cos, "tan": np.tan, "tanh": np.tanh, "sinh": np.sinh,
    "cosh": np.cosh, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh, "atan2": np.arctan2,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)), "silu": lambda x: x / (1 + np.exp(-x)), "relu": lambda x: np.maximum(x, 0), "square": np.square, "sign": lambda x: np.sign(np.where(np.isnan(x), 0, x)),
    "erf": erf, "erfc": lambda x: 1 - erf(x), "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": round_even, "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin, "pow": np.power, "hypot": np.hypot, "copysign": np.copysign, "nextafter": np.nextafter,
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "logical_and": np.logical_and, "logical_or": np.logical_or, "logical_xor": np.logical_xor, "logical_not": np.logical_not, "_and": np.logical_and, "_or": np.logical_or, "_not": np.logical_not,
    "bitwise_and": np.bitwise_and, "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "bitwise_not": np.bitwise_not, "__lshift__": shift_left, "__rshift__": shift_right,
    "bitwise_left_shift": shift_left, "bitwise_right_shift": shift_right, "where": np.where, "masked_fill": lambda x, m, v: np.where(m, v, x),
    "clamp": clamp, "clamp_min": lambda x, min: np.maximum(x, min), "clamp_max": lambda x, max: np.minimum(x, max), "lerp": lambda a, b, w: a + w * (b - a),
    "addcmul": lambda a, b, c, value=1: a + value * (b * c), "addcdiv": lambda a, b, c, value=1: a + value * (b / c), "leaky_relu": lambda x, negative_slope=0.01: np.where(x > 0, x, x * negative_slope),
    "elu": lambda x, alpha=1, scale=1, input_scale=1: scale * np.where(x > 0, x, alpha * np.expm1(x * input_scale)), "softplus": lambda x, beta=1, threshold=20: np.where(x * beta > threshold, x, np.log1p(np.exp(np.minimum(x * beta, threshold))) / beta),
    "hardtanh": lambda x, min_val=-1, max_val=1: clamp(x, min_val, max_val), "logit": logit, "signbit": np.signbit, "xlogy": lambda x, y: np.where(x == 0, 0, x * np.log(y)),
    "lgamma": np.vectorize(math.lgamma, otypes=[float]), "alias": lambda x: x,
    "gelu": lambda x, approximate="none": 0.5 * x * (1 + erf(x * math.sqrt(0.5))) if approximate == "none" else 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "_gelu_erf": lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))), "_gelu_tanh_approx": lambda x: 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
}
POINTWISE = {k: quiet(v) for k, v in POINTWISE.items()}
