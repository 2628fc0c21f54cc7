"""Description of a generated codelet: a loop nest over arrays, as plain data that determines its code and cache key.

Dimensions are loops in storage order; the last one runs in SIMD lanes. Each array is accessed by an address and a
stride in bytes for each dimension, both known only at run time, so that one codelet serves every shape.
"""

from __future__ import annotations

from engine.frozen import frozen


@frozen
class Operation:
    """An operation of a node: result and operand element types, and HLO's attributes as sorted pairs."""

    opcode: str
    element_type: str
    operand_types: tuple[str, ...]
    attributes: tuple[tuple[str, object], ...] = ()

    def __getitem__(self, name: str) -> object:
        return dict(self.attributes)[name]

    @property
    def is_estimated(self) -> bool:
        """Whether the result may be a few ULP away from the correctly rounded one."""
        return self.element_type == "f32" and "result_accuracy" in dict(self.attributes)


@frozen
class Access:
    """An array in a nest: its element type and how its address moves along the last dimension.

    `inner` is "contiguous" (the next lane is the next element), "splat" (all lanes see one element), "strided",
    or in nests with a period "periodic": contiguous in each row, and the same in all of them.
    """

    element_type: str
    inner: str


@frozen
class Input:
    """A node that loads from access number `access`."""

    access: int


@frozen
class Index:
    """A node that counts: access number `access` holds the start as its address and the steps as its strides."""

    access: int
    element_type: str


@frozen
class Constant:
    """A scalar in all lanes; `value` is the Python number's repr, so that NaN and -0 are usable in keys."""

    element_type: str
    value: str


@frozen
class Parameter:
    """A scalar in all lanes that the parameter block has as number `number` of its constants."""

    element_type: str
    number: int


@frozen
class Apply:
    """A node that applies an operation to earlier nodes."""

    operation: Operation
    operands: tuple[int, ...]


@frozen
class Argument:
    """An accumulator or value, number `number`, in a reduction's body."""

    number: int
    element_type: str


@frozen
class MultiplyAdd:
    """A node: the product of two f32 nodes, or their estimated quotient, plus a third one, rounded once."""

    factors: tuple[int, ...]
    addend: int
    divides: bool
    negates_product: bool
    negates_addend: bool

    @property
    def operands(self) -> tuple[int, ...]:
        return (*self.factors, self.addend)


Node = Input | Index | Constant | Parameter | Apply | Argument | MultiplyAdd


@frozen
class Store:
    """Node number `node` written to access number `access` at every point."""

    node: int
    access: int


@frozen
class Body:
    """A general reduction body: nodes over 2n arguments (accumulators, then values), and its n results."""

    nodes: tuple[Node, ...]
    results: tuple[int, ...]


@frozen
class Reduction:
    """Values combined over the reduced dimensions, from the initial nodes on, and stored once.

    `combine` is the opcode of a body that is one associative operation, or a Body. `element_types` are the types of the
    accumulators; an access may have a narrower one, to which the result is rounded once.
    """

    combine: str | Body
    values: tuple[int, ...]
    initial: tuple[int, ...]
    element_types: tuple[str, ...]
    accesses: tuple[int, ...]


@frozen
class Nest:
    """A generated codelet. Equal nests share machine code.

    The parameter block, all int64: grain; the extent of each dimension; then for each access its address, its
    stride in bytes along each dimension and the pitch between the partial results of units.
    Units split dimension `partition` into blocks of `grain`; where that dimension is reduced, each unit writes a
    separate partial result, without the initial value.
    With a `period`, rows have that many columns and are contiguous in all arrays but splat and periodic ones, so that
    all rows may run as one loop.
    With `exceptions` the nest checks for these; then follows the address of its Record. Then follow the values of nodes
    of the class Parameter, one in each word.
    """

    reduced: tuple[bool, ...]
    partition: int
    accesses: tuple[Access, ...]
    nodes: tuple[Node, ...]
    stores: tuple[Store, ...] = ()
    reductions: tuple[Reduction, ...] = ()
    exceptions: tuple[str, ...] = ()
    period: int = 0

    @property
    def rank(self) -> int:
        return len(self.reduced)

    @property
    def splits_reduction(self) -> bool:
        return self.reduced[self.partition]

    def access_word(self, access: int) -> int:
        """The index of an access's first word in the parameter block."""
        return 1 + self.rank + access * (self.rank + 2)

    @property
    def record_word(self) -> int:
        """The index of the word with the Record's address, in a nest that checks for exceptions."""
        return self.access_word(len(self.accesses))

    @property
    def constants_word(self) -> int:
        """The index of the first word with the value of a Parameter."""
        return self.record_word + bool(self.exceptions)


@frozen
class Combiner:
    """A scatter's body over 2n arguments, n elements followed by n updates, with n results of the `element_types`.

    `opcode` names a body of one operation on one element, "assign" if it is the update, and "GT" or "LT" if the element
    stays where it compares so with the update.
    """

    body: Body
    element_types: tuple[str, ...]
    opcode: str | None = None


@frozen
class Comparator:
    """A body whose arguments 2k and 2k + 1 are two elements of operand k, with one result, a pred."""

    body: Body
