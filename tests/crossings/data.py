"""Features of data: number of samples, arguments of `fit`, weights of samples and classes, validation."""

from __future__ import annotations

from tests.crossings.plan import MICRO, Draft, feature


@feature("size", "24/4", "22/4", "9/3", "10/8", "5/8", "7/1", "32/2")
def size(d: Draft, option: str) -> None:
    d.samples, d.batch = map(int, option.split("/"))
    whole = d.samples % d.batch == 0
    d.need(MICRO not in d.tags or d.samples < 8 * d.batch)
    d.need(whole or "whole batches" not in d.tags)
    if not whole:
        d.tags.add("partial batch")


@feature("data", weight=2)
def arrays(d: Draft, _: str) -> None:
    d.given = "dict(x=x, y=y, batch_size=b)"


@feature("data")
def default_batch_size(d: Draft, _: str) -> None:
    d.need("whole batches" not in d.tags)
    d.given = "dict(x=x, y=y)"


@feature("data")
def tensors(d: Draft, _: str) -> None:
    convert = "tf.nest.map_structure(tf.convert_to_tensor, {})"
    d.given = f"dict(x={convert.format('x')}, y={convert.format('y')}, batch_size=b)"


@feature("data")
def lists(d: Draft, _: str) -> None:
    """Nested lists of rows: some versions of Keras take them as arrays, others raise."""
    d.need(d.kind == "dense" and not d.tags & {"inputs", "outputs"})
    d.given = "dict(x=x.tolist(), y=y.tolist(), batch_size=b)"


@feature("data")
def other_types(d: Draft, _: str) -> None:
    """Arrays of other float types than the model's."""
    d.need(d.kind == "dense" and not d.tags & {"inputs", "outputs"})
    labels = "y" if "classes" in d.tags else "np.round(8 * y)"
    d.given = f"dict(x=x.astype('float64'), y={labels}.astype('int64'), batch_size=b)"


@feature("data", "plain", "repeated", "no length", "dropped", "mapped", weight=2)
def dataset(d: Draft, option: str) -> None:
    d.is_arrays = False
    sets = {
        "plain": "",
        "repeated": ".repeat()",
        "no length": ".filter(lambda *a: True)",
        "dropped": "",
        "mapped": ".map(lambda *a: a)",
    }
    drop = ", drop_remainder=True" if option == "dropped" else ""
    made = f"tf.data.Dataset.from_tensor_slices(rows((x, y), 0, n)).batch(b{drop}){sets[option]}"
    d.given = f"dict(x={made})"
    d.has_length = option in ("plain", "dropped", "mapped")
    if option == "repeated":
        d.given = f"dict(x={made}, **{{steps: -(-n // b)}})"
        d.tags.add("endless")
    if option == "no length":
        d.tags.add("unknown length")


GENERATE = """
def batches(epochs=1, fails=None):
    for _ in range(epochs):
        for number, i in enumerate(range(0, n, b)):
            if number == fails:
                raise LookupError('broken data')
            yield rows((x, y), i, i + b)
"""


@feature("data", "finite", "endless", "iterator", weight=2)
def generator(d: Draft, option: str) -> None:
    d.is_arrays, d.has_length = False, False
    d.add_class(GENERATE)
    d.given = "dict(x=batches())"
    if option == "iterator":
        d.need(not d.is_keras3)
        d.given = "dict(x=iter(list(batches())))"
    if option == "endless":
        d.given = "dict(x=batches(99), **{steps: -(-n // b)})"
        d.tags.add("endless")
    else:
        d.fit["epochs"] = "1"
        d.tags |= {"one epoch", "unknown length"}


@feature("data", weight=0.6)
def failing_generator(d: Draft, _: str) -> None:
    """Data that raise in the middle of an epoch."""
    d.need(MICRO not in d.tags)
    d.is_arrays, d.has_length = False, False
    d.add_class(GENERATE)
    d.given = "dict(x=batches(1, 2))"
    d.fit["epochs"] = "1"
    d.tags |= {"one epoch", "unknown length", "failing data"}


SEQUENCE = """
class Rows(K.utils.BASE):
    def __init__(self):
        OPTIONS
        self.read = []
    def __len__(self):
        return -(-n // b)
    def __getitem__(self, index):
        return rows((x, y), index * b, index * b + b)
    def on_epoch_end(self):
        note.items.append(('rows on_epoch_end', None))
"""


@feature("data", "plain", "workers", weight=1.5)
def sequence(d: Draft, option: str) -> None:
    d.is_arrays = False
    d.tags.add("sequence")
    options = "super().__init__(workers=2, use_multiprocessing=False)" if option == "workers" else "super().__init__()"
    d.need(option == "plain" or d.is_keras3)
    base = "PyDataset" if d.is_keras3 else "Sequence"
    d.add_class(SEQUENCE.replace("BASE", base).replace("OPTIONS", options if d.is_keras3 else "pass"))
    d.given = "dict(x=Rows())"


@feature("weights", "samples", "zeros", "integers")
def sample_weight(d: Draft, option: str) -> None:
    d.need(d.is_arrays and "outputs" not in d.tags and "processes" not in d.device)
    weights = {
        "samples": "np.linspace(0, 2, n).astype(f)",
        "zeros": "(np.arange(n) >= m).astype(f)",
        "integers": "np.arange(n) % 3",
    }
    d.given = d.given[:-1] + f", sample_weight={weights[option]})"


@feature("weights")
def class_weight(d: Draft, _: str) -> None:
    d.need("classes" in d.tags)
    d.fit["class_weight"] = "{0: 1.0, 1: 0.2, 2: 3.0}"


@feature("epochs", "3", "1", "0", "initial")
def epochs(d: Draft, option: str) -> None:
    d.need("one epoch" not in d.tags and "epochs given" not in d.tags)
    d.fit |= {"epochs": "4", "initial_epoch": "2"} if option == "initial" else {"epochs": option}
    d.tags.add("epochs given")


@feature("epochs", "3", "1", "100")
def steps_per_epoch(d: Draft, option: str) -> None:
    d.need("endless" not in d.tags and "whole batches" not in d.tags)
    d.need(option != "100" or d.is_keras3 or "steps per execution" not in d.tags)
    d.fit["steps_per_epoch"] = option
    d.tags.add("steps given")


@feature("epochs", "True", "batch", weight=2)
def shuffle(d: Draft, option: str) -> None:
    d.need(d.is_arrays and d.kind != "stateful" and (option == "True" or MICRO not in d.tags))
    d.need("processes" not in d.device)
    d.fit["shuffle"] = option if option == "True" else repr(option)


OTHER = "part((x, y), 0, 2 * u)"


@feature("validation", "arrays", "dataset", "generator", "split", "frequency", "steps", "batch size", weight=6)
def validation(d: Draft, option: str) -> None:
    if option == "split":
        d.need(d.is_arrays and d.kind != "stateful" and "sample_weight" not in d.given and MICRO not in d.tags)
        d.fit["validation_split"] = "0.25"
        return
    d.need(option != "batch size" or d.kind != "stateful")
    d.need(option not in ("steps", "generator") or MICRO not in d.tags)
    d.fit["validation_data"] = OTHER
    if option != "batch size":
        d.fit["validation_batch_size"] = "b"
    if option == "frequency":
        d.fit["validation_freq"] = "2"
    if option == "steps":
        d.fit["validation_steps"] = "1"
    if option in ("dataset", "generator"):
        del d.fit["validation_batch_size"]
    if option == "dataset":
        d.need(not d.tags & {"inputs", "outputs"})
        d.fit["validation_data"] = f"tf.data.Dataset.from_tensor_slices({OTHER}).batch(b)"
    if option == "generator":
        d.need("endless" not in d.tags)
        # Otherwise tf_keras loses batches of the generator that it has read ahead.
        d.fit["validation_data"] = (
            f"(rows((x, y), {'i, i + b' if d.is_keras3 else '0, b'}) for i in range(0, n, b) for _ in range(999))"
        )
        d.fit["validation_steps"] = "1"
    d.tags.add("validation")
