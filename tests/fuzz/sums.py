"""Random steps that sum: reductions, products, convolutions, windows, and the gradients of these."""

from __future__ import annotations

from math import prod

from tests.fuzz.maker import INTEGERS, Maker, Node, Skip


def reduce(m: Maker) -> None:
    x = m.any_float()
    axes, keep = m.axes(x.rank), m.chance(0.3)
    count = prod(x.shape[d] for d in axes)
    kind = m.choose(("sum", "sum", "mean", "max", "min", "prod"))
    if kind in ("max", "min"):
        m.step(f"tf.reduce_{kind}({{0}}, {axes}, {keep})", m.ordered(x))
    elif kind == "prod":
        m.step(f"tf.reduce_prod(tf.tanh({{0}}) * 0.1 + 1, {axes}, {keep})", x, ulps=20 * count + 20)
    else:
        m.step(f"tf.reduce_{kind}({{0}}, {axes}, {keep})", m.tame(x), terms=count + 2)


def reduce_integers(m: Maker) -> None:
    x = m.pick(lambda n: n.dtype in INTEGERS or n.dtype == "bool") or m.input("int32", m.shape())
    axes, keep = m.axes(x.rank), m.chance(0.3)
    if x.dtype == "bool":
        kind = m.choose(("any", "all"))
    else:
        kind = m.choose(("sum", "max", "min", "prod"))
        if x.dtype in ("int16", "uint16", "uint32", "uint64", "int8", "uint8") and kind in ("sum", "prod"):
            # TensorFlow widens small integers; XLA's kernels do so for fewer types.
            kind = "max"
    m.step(f"tf.reduce_{kind}({{0}}, {axes}, {keep})", x)


def statistics(m: Maker) -> None:
    x = m.tame(m.any_float(1))
    if not x.elements:
        raise Skip
    axis = m.integer(0, x.rank - 1)
    n = x.shape[axis]
    template = m.choose(
        (
            *(
                f"tf.reduce_logsumexp({{0}}, {axis})",
                f"tf.nn.softmax({{0}}, {axis})",
                f"tf.nn.log_softmax({{0}}, {axis})",
            ),
            *(f"tf.math.reduce_variance({{0}}, {axis})", f"tf.math.l2_normalize({{0}}, {axis}, 1e-3)"),
        )
    )
    m.step(template, x, ulps=8 * n + 64, scale=32 * n + 256, bound=40.0)


def arg_extreme(m: Maker) -> None:
    x = m.any_float(1) if m.chance(0.7) else m.pick(lambda n: n.dtype in ("int32", "int64", "uint8") and n.rank > 0)
    if x is None:
        raise Skip
    axis = m.integer(0, x.rank - 1)
    if not x.shape[axis]:
        raise Skip
    x = m.ordered(x)
    m.step(f"tf.{m.choose(('argmax', 'argmin'))}({{0}}, {axis}, tf.{m.choose(('int32', 'int64'))})", x)


def cumulate(m: Maker) -> None:
    x = m.tame(m.any_float(1))
    axis = m.integer(0, x.rank - 1)
    n, flags = x.shape[axis], f"exclusive={m.chance(0.5)}, reverse={m.chance(0.5)}"
    if m.chance(0.6):
        m.step(f"tf.cumsum({{0}}, {axis}, {flags})", x, terms=n + 2)
    elif m.chance(0.5):
        m.step(f"tf.math.cumprod(tf.tanh({{0}}) * 0.1 + 1, {axis}, {flags})", x, ulps=20 * n + 20)
    elif n:
        m.step(f"tf.math.cumulative_logsumexp({{0}}, {axis}, {flags})", x, ulps=32 * n, scale=128 * n)


def matmul(m: Maker) -> None:
    x = m.tame(m.any_float(2, 4))
    if x.elements > 4000:
        raise Skip
    left, right, n = m.chance(0.3), m.chance(0.3), m.choose(m.sizes)
    depth = x.shape[-2] if left else x.shape[-1]
    batch = x.shape[:-2] if m.chance(0.6) else tuple(k if m.chance(0.5) else 1 for k in x.shape[:-2])
    y = m.tame(m.of(x.dtype, (*batch, n, depth) if right else (*batch, depth, n)))
    template = f"tf.matmul({{0}}, {{1}}, transpose_a={left}, transpose_b={right})"
    product(m, template, "lambda a, b: " + template.format("a", "b"), x, y, depth)


def einsum(m: Maker) -> None:
    sizes = {letter: m.choose(m.sizes) for letter in "abcdef"}
    left, right = ([str(c) for c in m.rng.permutation(list("abcdef"))][: m.integer(1, 4)] for _ in range(2))
    out = [str(c) for c in m.rng.permutation(sorted({*left, *right})) if m.chance(0.6)]
    for letters, most in ((left, 4000), (right, 4000), ({*left, *right}, 50_000)):
        while prod(sizes[c] for c in letters) > most:
            sizes[max(sorted(letters), key=lambda c: sizes[c])] = 2
    dtype = m.float_type()
    x, y = (m.tame(m.of(dtype, tuple(sizes[c] for c in side))) for side in (left, right))
    template = f"tf.einsum('{''.join(left)},{''.join(right)}->{''.join(out)}', {{0}}, {{1}})"
    terms = prod(sizes[c] for c in {*left, *right} - {*out})
    product(m, template, "lambda a, b: " + template.format("a", "b"), x, y, terms + max(x.elements, y.elements))


def product(m: Maker, template: str, function: str, x: Node, y: Node, terms: int) -> None:
    """Adds the product, and sometimes its gradients."""
    y_hat = m.step(template, x, y, terms=terms + 2)
    for which, wanted in enumerate((x, y)):
        if m.chance(0.35):
            upstream = m.tame(m.of(y_hat.dtype, y_hat.shape))
            count = max(1, y_hat.elements * terms // max(1, wanted.elements)) + 4
            m.step(f"gradient({function}, {which}, {{2}}, {{0}}, {{1}})", x, y, upstream, terms=count)


def convolution(m: Maker) -> None:
    """A convolution of any kind in one to three dimensions, maybe transposed or depthwise, and its gradients."""
    rank = m.choose((1, 2, 2, 2, 3))
    spatial = [m.integer(1, 12 if rank < 3 else 6) for _ in range(rank)]
    window = [m.integer(1, min(4, n + 1)) for n in spatial]
    groups = m.choose((1, 1, 1, 2, 3)) if rank == 2 else 1
    per_group, outputs = m.integer(1, 5), groups * m.integer(1, 5)
    batch, channels, dtype = m.integer(1, 4), groups * per_group, m.float_type()
    strides, dilations = [m.integer(1, 3) for _ in range(rank)], [1] * rank
    if m.chance(0.4):
        strides, dilations = dilations, strides
    if any((k - 1) * d + 1 > n for k, d, n in zip(window, dilations, spatial, strict=True)) or rank == 3:
        padding, dilations = "'SAME'", [1] * rank
    else:
        padding = m.choose(("'SAME'", "'VALID'"))
        if rank == 2 and m.chance(0.3):
            padding = str([[0, 0], *([m.integer(0, 2), m.integer(0, 2)] for _ in range(2)), [0, 0]])
    x = m.tame(m.of(dtype, (batch, *spatial, channels)))
    if rank == 2 and m.chance(0.2):
        w = m.tame(m.of(dtype, (*window, channels, m.integer(1, 3))))
        same = strides if strides[0] == strides[1] else [1, 1]
        call = f"tf.nn.depthwise_conv2d({{0}}, {{1}}, [1, {same[0]}, {same[0]}, 1], 'SAME')"
    elif rank == 2:
        w = m.tame(m.of(dtype, (*window, per_group, outputs)))
        call = f"tf.nn.conv2d({{0}}, {{1}}, {strides}, {padding}, dilations={dilations})"
    elif rank == 1:
        w = m.tame(m.of(dtype, (*window, channels, outputs)))
        call = f"tf.nn.conv1d({{0}}, {{1}}, {strides[0]}, {padding}, dilations={dilations[0]})"
    else:
        w = m.tame(m.of(dtype, (*window, channels, outputs)))
        call = f"tf.nn.conv3d({{0}}, {{1}}, {[1, *strides, 1]}, {padding})"
    terms = prod(window) * max(per_group, outputs)
    product(m, call, "lambda a, b: " + call.format("a", "b"), x, w, terms)


def pool(m: Maker) -> None:
    size, stride = m.integer(1, 3), m.integer(1, 3)
    side = m.integer(size, 12)
    x = m.tame(
        m.of(
            m.choose(("float32", "float32", "float16", "bfloat16")), (m.integer(1, 3), side, side + 1, m.integer(1, 6))
        )
    )
    kind, padding = m.choose(("max", "avg")), m.choose(("SAME", "VALID"))
    call = f"tf.nn.{kind}_pool2d({{0}}, {size}, {stride}, '{padding}')"
    y = m.step(call, x, terms=size * size + 2 if kind == "avg" else 0, bound=4.0)
    if m.chance(0.5):
        upstream = m.tame(m.of(y.dtype, y.shape))
        template = f"gradient(lambda a: {call.format('a')}, 0, {{1}}, {{0}})"
        m.step(template, x, upstream, scale=(size * size + 2) * 4 * size * size)


FAMILIES = {
    **{reduce: 6, reduce_integers: 2, statistics: 2, arg_extreme: 2, cumulate: 2, matmul: 4, einsum: 2},
    **{convolution: 4, pool: 2},
}
