"""Random loops over a batch: recurrences, lists that are read and written, sums over the batch, and what mixes it."""

from __future__ import annotations

import random

STATE = ("i", "j", "h", "g", "sum", "xs", "ys", "w", "w2", "b", "ws", "zs")


class Body:
    """The text of a loop's body while it is written; `values` are of shape [batch, width]."""

    def __init__(self, r: random.Random, batch: int, width: int, steps: int) -> None:
        self.r, self.batch, self.width, self.steps = r, batch, width, steps
        self.lines: list[str] = []
        self.values = ["h", "g", self.new(f"{batch},{width}", f"reshape({self.slice()})")]

    def new(self, dims: str, text: str) -> str:
        self.lines.append(f"v{len(self.lines)} = f32[{dims}] {text}")
        return f"v{len(self.lines) - 1}"

    def slice(self) -> str:
        sizes = f"1,{self.batch},{self.width}"
        return self.new(sizes, f"dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={{{sizes}}}")

    def pick(self) -> str:
        return self.r.choice(self.values)

    def step(self) -> None:
        """One more value, most of them made of the same rows of others."""
        r, n, m = self.r, self.batch, self.width
        a, b, rows = self.pick(), self.pick(), f"{n},{m}"
        kind = r.choice(
            ["binary"] * 4
            + ["unary", "dot", "dot", "joined", "bias", "turned", "columns", "sides", "flat", "mixed"]
        )
        if kind == "binary":
            made = self.new(rows, f"{r.choice(['add', 'multiply', 'maximum', 'subtract'])}({a}, {b})")
        elif kind == "unary":
            made = self.new(rows, f"tanh({a})")
        elif kind == "dot":
            axis = r.randrange(2)
            made = self.new(rows, f"dot({a}, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{axis}}}")
        elif kind == "joined":
            both = self.new(f"{n},{2 * m}", f"concatenate({a}, {b}), dimensions={{1}}")
            made = self.new(rows, f"dot({both}, w2), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}")
        elif kind == "bias":
            made = self.new(rows, "broadcast(b), dimensions={1}")
        elif kind == "turned":
            turned = self.new(f"{m},{n}", f"transpose({a}), dimensions={{1,0}}")
            made = self.new(rows, f"transpose({self.new(f'{m},{n}', f'tanh({turned})')}), dimensions={{1,0}}")
        elif kind == "columns":
            total = self.new(f"{n}", f"reduce({a}, fzero), dimensions={{1}}, to_apply=plus")
            made = self.new(rows, f"broadcast({total}), dimensions={{0}}")
        elif kind == "sides":
            left = self.new(f"{n},2", f"slice({a}), slice={{[0:{n}], [1:3]}}")
            right = self.new(f"{n},{m - 2}", f"slice({b}), slice={{[0:{n}], [2:{m}]}}")
            made = self.new(rows, f"concatenate({left}, {right}), dimensions={{1}}")
        elif kind == "flat":
            flat = self.new(f"{n},1,{m}", f"reshape({a})")
            made = self.new(rows, f"reshape({flat})")
        elif r.random() < 0.5:
            made = self.new(rows, f"reverse({a}), dimensions={{{r.randrange(2)}}}")
        else:
            total = self.new(f"{m}", f"reduce({a}, fzero), dimensions={{0}}, to_apply=plus")
            made = self.new(rows, f"broadcast({total}), dimensions={{1}}")
        self.values.append(made)

    def product(self) -> str:
        """A sum over the batch."""
        return self.new(
            f"{self.width},{self.width}",
            f"dot({self.pick()}, {self.pick()}), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}",
        )

    def write(self, name: str, value: str, dims: str) -> str:
        place = self.r.choice("iij")
        update = self.new(f"1,{dims}", f"reshape({value})")
        return self.new(
            f"{self.steps},{dims}", f"dynamic-update-slice({name}, {update}, {place}, zero, zero)"
        )

    def results(self) -> list[str]:
        """What the body makes of each part of the state."""
        r, rows, square = self.r, f"{self.batch},{self.width}", f"{self.width},{self.width}"
        h, g = (self.new(rows, f"tanh({self.pick()})") for _ in range(2))
        total = self.new(
            square, f"{r.choice(['add', 'add', 'add', 'add', 'maximum'])}(sum, {self.product()})"
        )
        if r.random() < 0.3:
            total = self.new(square, f"add({self.product()}, {total})")
        ys = self.write("ys", self.pick(), rows)
        ws = self.write("ws", r.choice(["w", "w", self.new(square, "multiply(w, w)")]), square)
        return ["i2", "j2", h, g, total, "xs", ys, "w", "w2", "b", ws, self.write("zs", self.slice(), rows)]


def random_loop(seed: int) -> str:
    """A module with a loop that runs about as often as its lists are long."""
    r = random.Random(seed)
    batch, width, steps = r.choice([4, 5, 8, 7]), r.choice([3, 4, 6]), r.choice([2, 3, 5])
    first, last = r.choice([0, 0, 0, 1]), r.choice([steps, steps, steps - 1, steps + 1])
    body = Body(r, batch, width, steps)
    for _ in range(r.randint(3, 9)):
        body.step()
    results = body.results()
    rows, square = f"{batch},{width}", f"{width},{width}"
    dims = [
        rows,
        rows,
        square,
        f"{steps},{rows}",
        f"{steps},{rows}",
        square,
        f"{2 * width},{width}",
        f"{width}",
        f"{steps},{square}",
        f"{steps},{rows}",
    ]
    shapes = ["s32[]", "s32[]", *(f"f32[{d}]" for d in dims)]
    state = f"({', '.join(shapes)})"
    parts = "\n".join(
        f"{n} = {s} get-tuple-element(p), index={k}" for k, (n, s) in enumerate(zip(STATE, shapes))
    )
    numbers = (
        f"zero = s32[] constant(0) one = s32[] constant(1) last = s32[] constant({first + last}) "
        "fzero = f32[] constant(0) two = f32[] constant(2)"
    )
    test = "ROOT c = pred[] compare(i, last), direction=LT"
    if r.random() < 0.15:
        test = (
            "m = f32[] reduce(h, fzero), dimensions={0,1}, to_apply=plus low = pred[] compare(m, two), "
            "direction=LT more = pred[] compare(i, last), direction=LT ROOT c = pred[] and(low, more)"
        )
    given = "\n".join(f"a{k} = {s} parameter({k - 2})" for k, s in enumerate(shapes) if k > 1)
    init = ["start", "zero", *(f"a{k}" for k in range(2, len(shapes)))]
    if r.random() < 0.5:
        init[2] = init[3] = "hz"
        init[4] = "sz"
    wanted = r.choice([[2, 3, 4, 6, 10, 11], [2, 3, 4, 6, 10, 11], [0, 2, 4, 1]])
    outputs = "\n".join(f"o{k} = {shapes[k]} get-tuple-element(end), index={k}" for k in wanted)
    newline = "\n"
    return f"""HloModule m
plus {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
more {{ p = {state} parameter(0)
{parts}
{numbers}
{test} }}
step {{ p = {state} parameter(0)
{parts}
{numbers}
i2 = s32[] add(i, one)
j2 = s32[] add(j, one)
{newline.join(body.lines)}
ROOT r = {state} tuple({", ".join(results)}) }}
ENTRY main {{
{given}
{numbers}
start = s32[] constant({first})
hz = f32[{rows}] broadcast(fzero), dimensions={{}}
sz = f32[{square}] broadcast(fzero), dimensions={{}}
t = {state} tuple({", ".join(init)})
end = {state} while(t), condition=more, body=step
{outputs}
ROOT out = ({", ".join(shapes[k] for k in wanted)}) tuple({", ".join(f"o{k}" for k in wanted)}) }}
"""
