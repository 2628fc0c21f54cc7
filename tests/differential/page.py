"""The page in docs/: the table of N of M, the tolerance, and all that is missing with its reason."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from tests.differential.report import HOST_ONLY, Missing, Record, Records

KEYS = ("good", "names", "not refused", "cases", "compared", "within 1e-6", "beyond 1e-5")
HEAD = """# Keras on the engine

This page says which layers, losses, metrics, optimizers, schedules and activations of Keras work on the engine as on
TensorFlow. Each public name is tested in a small model, which trains, evaluates and predicts on the engine and on
TensorFlow, with the same inputs, weights and random numbers. `python -m tests.differential --write` makes this page;
the cases are in [tests/differential](../tests/differential).
"""
TOLERANCE = """## How far results may differ

The test compares all weights after training, the history, the results of `evaluate` and all predictions. It allows a
difference of the largest of these:

- three times the difference between two runs of TensorFlow, of which one has the rows of each batch in another order:
  the same mathematics, rounded in another order;
- 1e-5: numbers are of the order of one, a rounding changes them by up to 6e-8, and a result of four steps has been
  rounded some hundred and fifty times;
- two units in the last place (float32) of the largest value.

NaN, infinities and shapes must match. Training must change the weights by at least thirty times as much as they may
differ. {distances}

Layers that draw random numbers in training are compared with TensorFlow under `jit_compile=True`, which draws the same
numbers. For this tf_keras keeps its random state in variables (`enable_tf_random_generator`). `RandomCrop` of Keras 3
crops to a size that is not known when XLA compiles, so XLA scales the whole image; the engine and the reference crop.
The number of bins of a `CategoryEncoding`, which TensorFlow takes from the data, is `num_tokens` here.
"""
MISSING = """## What is missing

TensorFlow itself cannot make HLO of these layers: `jit_compile=True` fails, too, and no hardware ever ran them. Put
them into the input pipeline, which the host runs: `dataset.map(lambda x, y: (layer(x, training=True), y))`. If a layer
has a mode or a variant in brackets, only that one is missing.
"""


def page(records: Records, versions: dict[str, str]) -> str:
    """The whole page, in Markdown."""
    parts = [HEAD, "\n".join(_table(records, versions)), _total(records), _tolerance(records), _missing(records)]
    return "\n".join(part.rstrip() + "\n" for part in parts)


def total(kinds: dict[str, Record]) -> dict[str, int]:
    return {key: sum(record[key] for record in kinds.values()) for key in KEYS}


def _table(records: Records, versions: dict[str, str]) -> Iterator[str]:
    names = sorted(records)
    kinds = list(dict.fromkeys(kind for name in names for kind in records[name]))
    yield "| | " + " | ".join(f"{name} {versions[name]}" for name in names) + " |"
    yield "|---|" + "---|" * len(names)
    for kind in kinds:
        cells = (_cell(records[name][kind]) if kind in records[name] else "" for name in names)
        yield f"| {kind} | " + " | ".join(cells) + " |"
    yield "| **all** | " + " | ".join(f"**{_cell(total(records[name]))}**" for name in names) + " |"


def _cell(record: Record) -> str:
    return f"{record['good']} of {record['names']}"


def _total(records: Records) -> str:
    sentences = []
    for name in sorted(records):
        sums = total(records[name])
        sentences.append(
            f"- {name}: TensorFlow compiles {sums['not refused']} of {sums['names']} public names to HLO, in all "
            f"variants and modes of the test ({sums['cases']} cases). Of these, {sums['good']} have equal results here."
        )
    return "\n".join(textwrap.fill(sentence, 120, subsequent_indent="  ") for sentence in sentences)


def _tolerance(records: Records) -> str:
    sums = [total(kinds) for kinds in records.values()]
    compared, close, beyond = (sum(s[key] for s in sums) for key in ("compared", "within 1e-6", "beyond 1e-5"))
    return TOLERANCE.format(
        distances=f"Of {compared} comparisons, {close} were within 1e-6, and {beyond} needed more than 1e-5."
    )


def _missing(records: Records) -> str:
    names = sorted(records)
    of_xla, ours, host = _grouped(records, "refused by XLA"), _grouped(records, None), _grouped(records, HOST_ONLY)
    parts = [MISSING, _rows("what XLA lacks", names, of_xla)]
    if host:
        parts += ["\nThese have no test, because no device could run them:\n", _rows("reason", names, host)]
    parts += ["\n## What fails\n", _rows("reason", names, ours) if ours else "Nothing."]
    return "\n".join(parts)


def _grouped(records: Records, verdict: str | None) -> dict[str, dict[str, list[str]]]:
    """Names in each framework by reason, for one verdict; `None` stands for all verdicts that are faults."""
    groups: dict[str, dict[str, list[str]]] = {}
    for framework, kinds in records.items():
        for kind, record in kinds.items():
            for each in (Missing(*values) for values in record["missing"]):
                expected = each.verdict not in ("refused by XLA", HOST_ONLY)
                if each.verdict != verdict if verdict else not expected:
                    continue
                reason = each.reason if verdict else f"{each.verdict}: {each.reason}"
                name = each.name if kind == "layers" else f"{each.name} ({kind})"
                modes = f" ({each.modes})" if each.modes and each.modes.count(",") < 2 else ""
                groups.setdefault(reason, {}).setdefault(framework, []).append(name + modes)
    return groups


def _rows(head: str, names: list[str], groups: dict[str, dict[str, list[str]]]) -> str:
    lines = [f"| {head} | {' | '.join(names)} |", "|---|" + "---|" * len(names)]
    for reason, found in sorted(groups.items()):
        cells = (", ".join(found.get(name, [])) for name in names)
        lines.append(f"| {reason} | {' | '.join(cells)} |")
    return "\n".join(lines)
