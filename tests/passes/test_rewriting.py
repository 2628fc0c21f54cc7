"""The driver of rewrites, with the instructions that it keeps, rebuilds and refuses; and the list of passes."""

import pytest

from engine.compile import prepare
from engine.compiler_options import CompilerOptions
from engine.errors import InternalError
from engine.ir import Instruction, Shape
from engine.ir.builder import Builder
from engine.ir.verifier import verify
from engine.passes import construct
from engine.passes.pass_list import MODULE_PASSES, SIMPLIFICATION
from engine.passes.rewriting import RuleSet, changed, rewrite
from engine.passes.run_passes import run_passes
from tests.passes.checking import alive, simplified


def small_module():
    b = Builder()
    x = b.parameter("f32", (3,))
    b.add(b.elementwise("exponential", x), b.elementwise("negate", x))
    return b.module(aliases={0: 0})


def test_nothing_to_do_gives_the_same_module():
    module = small_module()
    assert rewrite(module, RuleSet()) is module


def test_only_users_of_a_change_are_rebuilt():
    rules = RuleSet()
    rules.on("negate")(lambda i: construct.elementwise(i, "abs", i.operands[0]))
    module = small_module()
    after = rewrite(module, rules)
    verify(after)
    assert after.entry.root is not module.entry.root
    assert after.entry.root.operands[0] is module.entry.root.operands[0]
    assert module.entry.root.operands[1].opcode == "negate"
    assert after.aliases == module.aliases


def test_what_a_rule_makes_is_offered_to_the_rules():
    rules = RuleSet()

    @rules.on("negate")
    def doubled(instruction):
        inner = construct.elementwise(instruction, "exponential", instruction.operands[0])
        return construct.elementwise(instruction, "abs", inner)

    rules.on("exponential")(lambda i: construct.elementwise(i, "sqrt", i.operands[0]))
    after = rewrite(small_module(), rules)
    verify(after)
    assert sorted(alive(rewrite(after, rules))) == ["abs", "add", "sqrt", "sqrt"]


def test_new_names_do_not_collide():
    rules = RuleSet()
    rules.on("negate")(lambda i: construct.elementwise(i, "exponential", i.operands[0]))
    b = Builder()
    x = b.parameter("f32")
    for name in ("exponential", "exponential.1", "exponential.2"):
        b.instruction("abs", x.shape, (x,)).name = name
    module = b.module(b.tuple(*[b.elementwise("negate", x) for _ in range(4)]))
    verify(rewrite(module, rules))


def test_rule_that_changes_the_shape_is_refused():
    rules = RuleSet()
    rules.on("negate")(lambda i: changed(i, shape=Shape("f32", (4,))))
    with pytest.raises(InternalError, match="keep its shape"):
        rewrite(small_module(), rules)


def chain(length, step):
    b = Builder()
    x = b.parameter("f32", (2,))
    for _ in range(length):
        x = step(b, x)
    return b.module()


CHAINS = {
    "reshaped": lambda b, x: b.elementwise("negate", b.reshape(x, (2, 1) if x.array_shape.rank == 1 else (2,))),
    "rounded": lambda b, x: b.elementwise("floor", b.reshape(x, (2, 1) if x.array_shape.rank == 1 else (2,))),
    "spread": lambda b, x: b.slice(b.elementwise("floor", b.concatenate([x, x], 0)), (1, 3)),
    "converted": lambda b, x: b.convert(b.convert(x, "f64"), "f32"),
    "added": lambda b, x: b.add(x, x),
    "reversed": lambda b, x: b.reverse(x, (0,)),
    "padded": lambda b, x: b.slice(b.pad(x, b.constant(0.0), (1, 1)), (1, 3)),
}


@pytest.mark.parametrize("kind", CHAINS)
def test_long_chains_need_no_recursion_and_work_in_proportion(kind, monkeypatch):
    """The work is the number of instructions made, which other programs on this machine cannot change."""
    made = []
    monkeypatch.setattr(Instruction, "__init__", counting(Instruction.__init__, made))
    work = []
    for length in (250, 1000):
        module = chain(length, CHAINS[kind])
        made.clear()
        simplified(module)
        work.append(len(made))
    assert work[1] <= 6 * work[0] + 50


def counting(function, calls):
    def counted(*arguments, **keywords):
        calls.append(1)
        function(*arguments, **keywords)

    return counted


def test_chain_of_pairs_vanishes():
    assert alive(simplified(chain(3000, CHAINS["reshaped"]))) == []


def test_called_computations_are_rewritten_once():
    rules = RuleSet()
    rules.on("add")(lambda i: construct.elementwise(i, "maximum", *i.operands))
    b = Builder()
    x, zero = b.parameter("f32", (3, 4)), b.constant(0.0)
    one = b.reduce(x, zero, (0,))
    other = b.instruction("reduce", one.shape, (x, zero), one.called, dimensions=(0,))
    after = rewrite(b.module(b.tuple(one, other)), rules)
    verify(after)
    assert after.results[0].called[0] is after.results[1].called[0]
    assert after.results[0].called[0].root.opcode == "maximum"


def test_listener_hears_of_each_pass_in_order():
    heard = []
    after = run_passes(
        small_module(), SIMPLIFICATION, verify=True, listener=lambda name, module: heard.append((name, module))
    )
    assert [name for name, _ in heard] == [each.__name__ for each in SIMPLIFICATION]
    assert heard[-1][1] is after


def test_compiling_is_all_passes_whose_pipelines_apply():
    heard = []
    prepare(small_module(), listener=lambda name, module: heard.append(name))
    others = ("complex products", "loops", "fast math", "recomputation", "order of loops")
    without = [each for each in MODULE_PASSES if each.name not in others]
    assert heard == [function.__name__ for each in without for function in each.passes]
    heard.clear()
    prepare(small_module(), options=CompilerOptions(fast_math=True), listener=lambda name, module: heard.append(name))
    assert "fast_math" in heard


def test_verifier_is_asked_when_wanted():
    def broken(module):
        module.entry.root.shape = Shape("f32", (4,))
        return module

    with pytest.raises(InternalError):
        run_passes(small_module(), [broken], verify=True)
    run_passes(small_module(), [broken])
