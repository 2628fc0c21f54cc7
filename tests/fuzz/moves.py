"""Random steps that move elements: reshapes, slices, pads, gathers, scatters; and sorts."""

from __future__ import annotations

from math import prod

from tests.fuzz.maker import FLOATS, INTEGERS, Maker, Node, Skip

SORTABLE = (*FLOATS, "int32", "int64", "uint8")


def factors(m: Maker, count: int) -> list[int]:
    """A random shape of `count` elements."""
    shape = []
    while count > 1 and len(shape) < 4:
        divisors = [d for d in range(2, min(count, 70) + 1) if count % d == 0] or [count]
        shape.append(m.choose(divisors))
        count //= shape[-1]
    shape += [count] if count != 1 else []
    if m.chance(0.2):
        shape.insert(m.integer(0, len(shape)), 1)
    return shape[::-1] if m.chance(0.5) else shape


def reshape(m: Maker) -> None:
    x = m.any_value()
    if x.elements:
        m.step(f"tf.reshape({{0}}, {factors(m, x.elements)})", x, bound=x.bound)


def transpose(m: Maker) -> None:
    x = m.any_value(1)
    m.step(f"tf.transpose({{0}}, {[int(d) for d in m.rng.permutation(x.rank)]})", x, bound=x.bound)


def reverse(m: Maker) -> None:
    x = m.any_value(1)
    axes = m.axes(x.rank, 1)
    m.step(m.choose((f"tf.reverse({{0}}, {axes})", f"tf.roll({{0}}, {m.integer(-4, 4)}, {axes[0]})")), x, bound=x.bound)


def pad(m: Maker) -> None:
    x = m.any_value(1)
    mode = m.choose(("CONSTANT", "REFLECT", "SYMMETRIC")) if x.elements else "CONSTANT"
    most = {"CONSTANT": 4, "REFLECT": max(0, min(x.shape) - 1), "SYMMETRIC": min(x.shape)}[mode]
    paddings = [[m.integer(0, min(most, 4)), m.integer(0, min(most, 4))] for _ in x.shape]
    value = ", constant_values=True" if x.dtype == "bool" else ", constant_values=3"
    m.step(f"tf.pad({{0}}, {paddings}, '{mode}'{value if mode == 'CONSTANT' else ''})", x, bound=x.bound)


def general_pad(m: Maker) -> None:
    """XLA's own pad, with gaps and negative edges."""
    x = m.any_value(1, 4)
    configuration = []
    for size in x.shape:
        interior = m.choose((0, 0, 1, 2))
        spread = (size - 1) * (interior + 1) + 1 if size else 0
        low = m.integer(-min(spread, 3), 3)
        configuration.append((low, m.integer(-min(max(spread + low, 0), 3), 3), interior))
    if any(
        n and (n - 1) * (i + 1) + 1 + low + high < 0 for n, (low, high, i) in zip(x.shape, configuration, strict=True)
    ):
        raise Skip
    low, high, interior = ([c[k] for c in configuration] for k in range(3))
    m.step(f"xla.pad({{0}}, {{1}}, {low}, {high}, {interior})", x, m.of(x.dtype, ()), bound=x.bound)


def strided_slice(m: Maker) -> None:
    """Negative strides and bounds, new axes, an ellipsis, and indices that take a dimension away."""
    x = m.any_value(1)
    parts = []
    for size in x.shape:
        kind = m.integer(0, 5)
        if kind == 0 and size:
            parts.append(str(m.integer(-size, size - 1)))
        elif kind == 1:
            parts += ["None", ":"]
        elif kind == 2:
            parts.append("::-1" if m.chance(0.5) else f"::{m.integer(1, 3)}")
        elif kind == 3:
            parts.append(f"{m.integer(0, size)}::-{m.integer(1, 3)}")
        else:
            parts.append(f"{m.integer(-size - 1, size)}:{m.integer(-size, size + 2)}")
    if m.chance(0.3):
        parts = [*parts[: m.integer(0, len(parts) - 1)], "..."]
    m.step(f"{{0}}[{', '.join(parts)}]", x, bound=x.bound)


def slices(m: Maker) -> None:
    """Makes slices whose positions are known only at run time, and updates of them."""
    x = m.any_value(1, 4)
    if not x.elements:
        raise Skip
    index = m.of("int32", (x.rank,))
    sizes = [m.integer(1, n) for n in x.shape]
    # XLA adds up the starts of a slice of a slice before it clamps the sum, so those starts must be legal.
    start = "" if m.complete else f"tf.clip_by_value({{0}}, 0, {[n - k for n, k in zip(x.shape, sizes, strict=True)]})"
    if m.chance(0.5):
        m.step(f"xla.dynamic_slice({{0}}, {start.format('{1}') or '{1}'}, {sizes})", x, index, bound=x.bound)
    else:
        update = m.of(x.dtype, tuple(sizes))
        bound = max(x.bound, update.bound)
        m.step(f"xla.dynamic_update_slice({{0}}, {{1}}, {start.format('{2}') or '{2}'})", x, update, index, bound=bound)


def concat(m: Maker) -> None:
    x = m.any_value(1)
    axis = m.integer(0, x.rank - 1)

    def fits(n: Node) -> bool:
        rest = x.shape[:axis] + x.shape[axis + 1 :]
        return n.dtype == x.dtype and n.rank == x.rank and n.shape[:axis] + n.shape[axis + 1 :] == rest

    others = [m.pick(fits) or x for _ in range(m.integer(1, 3))]
    bound = max(n.bound for n in (x, *others))
    names = ", ".join(f"{{{k}}}" for k in range(len(others) + 1))
    m.step(f"tf.concat([{names}], {axis})", x, *others, bound=bound)
    if m.chance(0.3):
        y = m.of(x.dtype, x.shape)
        m.step(f"tf.stack([{{0}}, {{1}}, {{0}}], {m.integer(0, x.rank)})", x, y, bound=max(x.bound, y.bound))


def widen(m: Maker) -> None:
    x = m.any_value(0, 3)
    if x.elements > 2000:
        raise Skip
    template = m.choose(
        (
            f"tf.tile({{0}}, {[m.integer(1, 3) for _ in x.shape]})",
            f"tf.broadcast_to({{0}}, {[m.integer(1, 4), *x.shape]})",
            f"tf.repeat({{0}}, {m.integer(1, 3)}, {m.integer(0, x.rank - 1)})" if x.rank else "tf.fill([2, 3], {0})",
        )
    )
    m.step(template, x, bound=x.bound)


def gather(m: Maker) -> None:
    x = m.any_value(1, 4)
    if not x.elements:
        raise Skip
    axis = m.integer(0, x.rank - 1)
    if m.chance(0.3) and x.rank > 1:
        indices = m.pick(lambda n: n.dtype in INTEGERS and n.rank == 2 and n.shape[0] == x.shape[0])
        indices = indices or m.input("int32", (x.shape[0], m.integer(1, 5)))
        m.step(f"tf.gather({{0}}, tokens({{1}}, {x.shape[1]}), batch_dims=1)", x, indices, bound=x.bound)
    elif m.chance(0.3):
        depth = m.integer(1, x.rank)
        indices = m.input("int32", (*m.shape(0, 2), depth), 0, 40)
        m.step(f"tf.gather_nd({{0}}, {{1}} % {list(x.shape[:depth])})", x, indices, bound=x.bound)
    else:
        indices = m.any_integer(0, 2)
        m.step(f"tf.gather({{0}}, tokens({{1}}, {x.shape[axis]}), axis={axis})", x, indices, bound=x.bound)


def scatter(m: Maker) -> None:
    """Updates at places that repeat, or, where updates overwrite, at different places."""
    x = m.any_float(1, 3) if m.chance(0.7) else m.any_integer(1, 3)
    depth = m.integer(1, x.rank)
    if not x.elements or x.elements > 4000:
        raise Skip
    count = m.integer(0, 6)
    x = m.tame(x)
    updates = m.tame(m.of(x.dtype, (count, *x.shape[depth:])))
    indices = m.input("int32", (count, depth), -1, max(x.shape) + 1)
    where = f"{{1}} % {list(x.shape[:depth])}" if m.chance(0.7) else "{1}"
    kind = m.choose(("add", "sub", "max", "min", "update"))
    if kind == "update":
        if depth != 1 or count > x.shape[0]:
            raise Skip
        where = f"tf.range({count})[:, None]"
    positive = "" if kind != "sub" else f"tf.tensor_scatter_nd_add({{0}}, {where}, {{2}})"
    terms = count + 2 if kind in ("add", "sub") and x.dtype in FLOATS else 0
    m.step(f"tf.tensor_scatter_nd_{kind}({{0}}, {where}, {{2}})", x, indices, updates, terms=terms, positive=positive)


def segments(m: Maker) -> None:
    x = m.tame(m.any_float(1, 3))
    ids = m.input("int32", x.shape[:1], -1, 4)
    kind = m.choose(("sum", "max", "min"))
    terms = x.shape[0] + 1 if kind == "sum" else 0
    m.step(f"tf.math.unsorted_segment_{kind}({{0}}, {{1}}, 4)", x, ids, terms=terms)


def one_hot(m: Maker) -> None:
    x = m.any_integer(0, 2)
    m.step(f"tf.one_hot(tf.cast({{0}}, tf.int32), {m.integer(1, 9)}, axis={m.integer(-1, x.rank)})", x, bound=1.0)


def sort(m: Maker) -> None:
    x = m.pick(lambda n: n.dtype in SORTABLE and n.rank >= 1) or m.input("float32", m.shape(1))
    axis = m.integer(0, x.rank - 1)
    direction = m.choose(("ASCENDING", "DESCENDING"))
    kind = m.integer(0, 3)
    x = m.ordered(x)
    if kind == 0:
        m.step(f"tf.sort({{0}}, {axis}, '{direction}')", x, bound=x.bound)
    elif kind == 1:
        m.step(f"tf.argsort({{0}}, {axis}, '{direction}', stable=True)", x)
    elif not x.shape[-1]:
        raise Skip
    else:
        m.step(f"tf.nn.top_k({{0}}, {m.integer(1, x.shape[-1])})[{kind - 2}]", x, bound=x.bound)


def arrange(m: Maker) -> None:
    """Blocks, bands and patches."""
    x = m.any_float(1, 3)
    if not x.elements:
        raise Skip
    options = [f"tf.linalg.diag({{0}}, k={m.integer(-1, 1)})"]
    if x.rank >= 2:
        options.append(f"tf.linalg.band_part({{0}}, {m.integer(-1, 2)}, {m.integer(-1, 2)})")
        options.append("tf.linalg.diag_part({0})")
    if prod(x.shape) <= 500:
        options.append("tf.meshgrid(tf.reshape({0}, [-1]), tf.reshape({0}, [-1])[:3])[0]")
    m.step(m.choose(options), x, bound=x.bound)


FAMILIES = {
    **{reshape: 4, transpose: 4, reverse: 2, pad: 2, general_pad: 2, strided_slice: 4, slices: 3, concat: 3, widen: 2},
    **{gather: 3, scatter: 3, segments: 1, one_hot: 1, sort: 2, arrange: 1},
}
