"""Random elementwise steps: floats, integers, comparisons, casts, control flow over elementwise bodies."""

from __future__ import annotations

from math import inf

from tests.fuzz.maker import FLOATS, INTEGERS, Maker, Skip

EXACT_UNARY = (
    *("tf.nn.relu({0})", "tf.abs({0})", "tf.negative({0})", "tf.sign({0})", "tf.floor({0})", "tf.math.ceil({0})"),
    *("tf.round({0})", "tf.math.rint({0})", "tf.nn.relu6({0})", "tf.square({0})", "tf.identity({0})"),
    *("tf.cast(tf.math.is_nan({0}), {0}.dtype)", "tf.cast(tf.math.is_finite({0}), {0}.dtype)"),
)
UNARY = (
    *("tf.tanh({0})", "tf.sigmoid({0})", "tf.sin({0})", "tf.cos({0})", "tf.atan({0})", "tf.math.erf({0})"),
    *("tf.exp({0})", "tf.math.expm1({0})", "tf.math.log(tf.abs({0}) + 0.125)", "tf.math.log1p(tf.abs({0}))"),
    *("tf.sqrt(tf.abs({0}))", "tf.math.rsqrt(tf.abs({0}) + 0.125)", "tf.nn.elu({0})", "tf.nn.selu({0})"),
    *("tf.nn.softplus({0})", "tf.nn.softsign({0})", "tf.nn.gelu({0})", "tf.nn.gelu({0}, approximate=True)"),
    *("tf.nn.silu({0})", "tf.nn.leaky_relu({0})", "tf.math.reciprocal(tf.abs({0}) + 0.125)", "tf.asinh({0})"),
    *("tf.sinh({0})", "tf.cosh({0})", "tf.tan({0} / 4)", "tf.math.erfc({0})"),
)
BINARY = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "tf.maximum({0}, {1})", "tf.minimum({0}, {1})"),
    *("tf.math.multiply_no_nan({0}, {1})", "tf.math.squared_difference({0}, {1})"),
)
DIVISIONS = ("{0} / {1}", "tf.math.divide_no_nan({0}, {1})", "tf.truncatemod({0}, {1})", "tf.math.floormod({0}, {1})")
INTEGER_BINARY = (
    *("{0} + {1}", "{0} - {1}", "{0} * {1}", "tf.maximum({0}, {1})", "tf.minimum({0}, {1})", "{0} // {1}", "{0} % {1}"),
    *("tf.bitwise.bitwise_and({0}, {1})", "tf.bitwise.bitwise_or({0}, {1})", "tf.bitwise.bitwise_xor({0}, {1})"),
    *("tf.bitwise.left_shift({0}, {1})", "tf.bitwise.right_shift({0}, {1})", "tf.truncatediv({0}, {1})"),
)
COMPARISONS = ("{0} < {1}", "{0} <= {1}", "{0} > {1}", "{0} >= {1}", "tf.equal({0}, {1})", "tf.not_equal({0}, {1})")
LOGICAL = ("tf.logical_and({0}, {1})", "tf.logical_or({0}, {1})", "tf.math.logical_xor({0}, {1})")


def unary(m: Maker) -> None:
    x = m.any_float()
    if m.chance(0.3):
        template = m.choose(EXACT_UNARY)
        x = m.tame(x) if m.chance(0.7) else m.ordered(x) if "relu" in template else x
        m.step(template, x, bound=64.0 if x.bound <= 8 else inf)
        return
    # Special values are also used as they are: exp(inf), tanh(nan).
    template = m.choose(UNARY)
    x = x if m.special and m.chance(0.2) and "lu(" not in template else m.tame(x)
    m.step(template, x, bound=60.0 if x.bound <= 8 else inf, ulps=24, scale=8)


def binary(m: Maker) -> None:
    x = m.any_float()
    x, y = (x, m.partner(x)) if m.chance(0.5) else (m.partner(x), x)
    if m.chance(0.25):
        template = m.choose(DIVISIONS)
        m.step(template, m.tame(x), y, ulps=0 if "mod" in template else 2)
    elif m.chance(0.15):
        m.step("tf.pow(tf.abs({0}) + 0.25, {1})", m.tame(x), m.tame(y), ulps=64)
    elif m.chance(0.15):
        m.step("tf.atan2({0}, {1})", x, y, ulps=16, bound=4.0)
    else:
        # A composite in halves may or may not round after each operation.
        template = m.choose(BINARY)
        if "imum" in template:
            x, y = m.ordered(x), m.ordered(y)
        bound = max(x.bound + y.bound, x.bound * y.bound) if "squared" not in template else (x.bound + y.bound) ** 2
        m.step(template, x, y, ulps=4 if "squared" in template else 0, bound=bound)


def integer_unary(m: Maker) -> None:
    x = m.any_integer()
    templates = ["tf.abs({0})", "tf.negative({0})", "tf.sign({0})", "tf.square({0})", "tf.bitwise.invert({0})"]
    signed = templates if not x.dtype.startswith("u") else templates[3:]
    signed = signed[1:] if x.dtype in ("uint16", "uint32", "uint64", "uint8") else signed
    m.step(m.choose(signed), x)


def integer_binary(m: Maker) -> None:
    x = m.any_integer()
    m.step(m.choose(INTEGER_BINARY), x, m.partner(x))


def compare(m: Maker) -> None:
    x = m.any_float() if m.chance(0.6) else m.any_integer()
    m.step(m.choose(COMPARISONS), x, m.partner(x))


def logical(m: Maker) -> None:
    x = m.pick(lambda n: n.dtype == "bool") or m.input("bool", m.shape())
    if m.chance(0.2):
        m.step("tf.logical_not({0})", x)
    else:
        m.step(m.choose(LOGICAL), x, m.partner(x))


def select(m: Maker) -> None:
    x = m.any_value()
    y = m.partner(x)
    condition = m.pick(lambda n: n.dtype == "bool" and n.shape in (x.shape, ()))
    m.step("tf.where({0}, {1}, {2})", condition or m.input("bool", x.shape), x, y, bound=max(x.bound, y.bound))


def clip(m: Maker) -> None:
    x = m.any_float() if m.chance(0.7) else m.any_integer()
    x, low, high = (m.ordered(n) for n in (x, m.of(x.dtype, ()), m.of(x.dtype, ())))
    m.step("tf.clip_by_value({0}, tf.minimum({1}, {2}), tf.maximum({1}, {2}))", x, low, high)


def cast(m: Maker) -> None:
    x = m.any_value()
    target = m.choose((*FLOATS, *INTEGERS, "bool", "float32", "int32"))
    m.step(f"tf.cast({{0}}, tf.{target})", x, bound=x.bound)


def bitcast(m: Maker) -> None:
    x = m.pick(lambda n: n.dtype in ("float32", "int32", "uint32", "float16", "bfloat16", "int16", "float64"))
    if x is None:
        raise Skip
    integers = {"float16": "uint16", "bfloat16": "int16", "int16": "uint16", "float64": "int64"}
    m.step(f"tf.bitcast({{0}}, tf.{integers.get(x.dtype, m.choose(('uint32', 'int32', 'uint8')))})", x)


def body(m: Maker, names: list[str], depth: int = 3) -> str:
    """A nested expression of the names, continuous and between -1 and 1 where its operands are tame."""
    if depth == 0 or m.chance(0.15):
        return str(m.choose(names))
    a, b = body(m, names, depth - 1), body(m, names, depth - 1)
    return str(
        m.choose(
            (
                *(f"tf.tanh({a} * 0.5 + {b})", f"tf.sin({a})", f"({a} + {b}) * 0.5", f"tf.maximum({a}, {b})"),
                *(f"tf.sigmoid({a}) * {b}", f"tf.abs({a}) - tf.abs({b})", f"tf.minimum({a}, tf.cos({b}))"),
            )
        )
    )


def loop(m: Maker) -> None:
    """A loop with a fixed or a data-dependent number of trips, sometimes over whole numbers."""
    if m.chance(0.3):
        x, n = m.any_integer(), m.of("int32", ())
        m.step("repeat({1}, lambda i, x: x * 3 + tf.cast(i, x.dtype), {0})", x, n)
        return
    x = m.tame(m.any_float())
    y = m.tame(m.of(x.dtype, x.shape))
    inner = f"tf.tanh({body(m, ['x', '{1}'])})"
    if m.chance(0.5):
        m.step(f"repeat({m.integer(0, 5)}, lambda i, x: {inner}, {{0}})", x, y, bound=4.0, scale=4000)
    else:
        n = m.of("int32", ())
        template = f"repeat({{2}}, lambda i, x: {inner} + tf.cast(i, x.dtype) / 8, {{0}})"
        m.step(template, x, y, n, bound=8.0, scale=4000)


def loop_over_rows(m: Maker) -> None:
    """Dynamic slices and updates at the trip's number, as scans make them."""
    x = m.tame(m.any_float(1, 3))
    rows = x.shape[0]
    if not 0 < rows <= 17 or not x.elements:
        raise Skip
    body_ = f"tf.tensor_scatter_nd_update(a, [[i]], tf.tanh({{0}}[i] * 0.5 + a[{rows - 1} - i])[None])"
    m.step(f"repeat({rows}, lambda i, a: {body_}, tf.zeros_like({{0}}), {rows})", x, bound=4.0, scale=4000)


def branch(m: Maker) -> None:
    x = m.tame(m.any_float())
    y = m.tame(m.of(x.dtype, x.shape))
    ones = [body(m, ["{0}", "{1}"]) for _ in range(3)]
    if m.chance(0.5):
        p = m.of("bool", ())
        m.step(f"tf.cond({{2}}, lambda: {ones[0]} + 0, lambda: {ones[1]} + 0)", x, y, p, bound=8.0, scale=500)
    else:
        branches = ", ".join(f"lambda: {one} + 0" for one in ones)
        m.step(f"tf.switch_case({{2}}, [{branches}])", x, y, m.of("int32", ()), bound=8.0, scale=500)


def random_bits(m: Maker) -> None:
    """Counter-based random numbers, which are the same everywhere."""
    seed = m.of("int32", (2,))
    shape = list(m.shape(0, 3))
    dtype = m.choose(("float32", "float64", "float16", "int32"))
    limits = ", -3, 1000" if dtype == "int32" else ""
    m.step(f"tf.random.stateless_uniform({shape}, {{0}}{limits or ', 0, 1'}, tf.{dtype})", seed, bound=8.0)


FAMILIES = {
    **{unary: 10, binary: 12, integer_unary: 2, integer_binary: 4, compare: 3, logical: 1, select: 4, clip: 2},
    **{cast: 4, bitcast: 1, loop: 1, loop_over_rows: 1, branch: 1, random_bits: 1},
}
