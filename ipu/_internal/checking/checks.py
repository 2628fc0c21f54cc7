"""All findings about one program."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from engine.errors import ConfigurationError
from ipu._internal.checking import installed
from ipu._internal.checking.finding import Finding
from ipu._internal.checking.live import uncalled
from ipu._internal.checking.old_names import (
    LAYER_ARGUMENTS,
    METHOD_ARGUMENTS,
    METHODS,
    OF_DATASETS_1,
    OPTIMIZER_ARGUMENTS,
    REFUSED,
)
from ipu._internal.checking.program import LEAVING, CallSite, CheckedProgram, NameUse, OptionSet
from ipu._internal.config.effects import EFFECTS, OLDER
from ipu._internal.config.legacy import IpuOptions
from ipu._internal.config.library_flags import LIBRARIES, REPORTS, LibraryFlags, check_flags

V1 = "tensorflow.compat.v1"
GRAPHS = frozenset(f"{root}.{name}" for root in ("tensorflow", V1) for name in ("Graph", "get_default_graph"))
"""Functions whose result has an `as_default` that leaves eager mode for a graph."""
SESSIONS = frozenset(
    f"{V1}.{name}"
    for name in (
        *("InteractiveSession", "Session", "placeholder", "train.MonitoredSession", "train.MonitoredTrainingSession"),
        *("data.make_initializable_iterator", "data.make_one_shot_iterator", "train.SingularMonitoredSession"),
    )
)
EAGER = (
    "TensorFlow 1 had no eager mode. Begin the program with `import tensorflow.compat.v1 as tf` and "
    "`tf.disable_v2_behavior()`, or run it by `python -m ipu.run --tf1`."
)
CLOSED = (
    "The `with` statement of the graph has ended, and eager mode is on again. Indent the line, or begin the program "
    "with `tf.disable_v2_behavior()`."
)
NUMPY = "There are no eager tensors after {}. Fetch the tensor by Session.run, or leave that line out."
STEPS = "One call of the engine runs one step. Give a value well above 1, which divides the steps of an epoch."


def findings(
    program: CheckedProgram, together: Sequence[CheckedProgram] = (), others: Iterable[Finding] = ()
) -> list[Finding]:
    """Findings of things to know and to change, with `others`, by line.

    `together` are all modules of the program, if there are others.
    """
    modules = together or [program]
    imported = {name.partition(".")[0] for use in program.uses for name in use.names}
    keras3 = not (installed.legacy_keras() or program.legacy_keras) and "tf_keras" not in imported
    found = [
        *others,
        *_of_modes(program, modules),
        *(finding for use in program.uses for finding in _of_use(use)),
        *(finding for call in program.calls for finding in _of_call(call, keras3, is_version_1(program))),
        *(finding for option in program.options for finding in _of_option(option)),
    ]
    never = uncalled(each.mentions for each in modules)
    bodies = {name: program.mentions.bodies[name] for name in never & program.mentions.bodies.keys()}
    known = {_where_it_runs(finding, bodies) for finding in found}
    return sorted(known, key=lambda finding: (finding.line, finding.what))


def _where_it_runs(finding: Finding, bodies: Mapping[str, Sequence[range]]) -> Finding:
    """The finding, as a note if it is in the body of a function or class that the program never calls."""
    name = next((name for name, lines in bodies.items() if any(finding.line in each for each in lines)), None)
    if name is None or finding.level == "note":
        return finding
    return replace(finding, level="note", advice=f"{finding.advice} The program does not call {name}.")


def leaves_eager_mode(program: CheckedProgram) -> bool:
    """Whether a module makes graphs the default, or builds in a graph of its own."""
    names = {name for call in program.calls for name in call.names}
    methods = {call.method for call in program.calls}
    return bool(LEAVING & {name.rpartition(".")[2] for name in names}) or bool(
        "as_default" in methods and names & GRAPHS
    )


def _of_modes(program: CheckedProgram, modules: Sequence[CheckedProgram]) -> Iterator[Finding]:
    """Finds where a program of TensorFlow 1's sessions needs the eager mode off, or one without it needs eager
    tensors.
    """
    disabling = [call for call in program.calls for name in call.names if name.rpartition(".")[2] in LEAVING]
    first = min((call.line for call in disabling if call.at_top), default=None)
    leaves = any(map(leaves_eager_mode, modules))
    called = {name.rpartition(".")[2] for each in modules for call in each.calls for name in call.names}
    closed = bool(program.blocks) and all(each.closes for each in modules) and not LEAVING & called
    for use in program.uses if closed else ():
        outside = use.at_top and not use.is_import and not any(use.line in block for block in program.blocks)
        if outside and f"{V1}.placeholder" in use.names:
            yield Finding(use.line, "change", installed.short(use.names[0]), CLOSED)
            break
    for use in program.uses:
        if any(name in SESSIONS for name in use.names) and not use.is_import:
            if not leaves or (first is not None and use.at_top and use.line < first):
                yield Finding(use.line, "change", installed.short(use.names[0]), EAGER)
                break
    if disabling and not any(name.partition(".")[0] == "torch" for use in program.uses for name in use.names):
        for call in program.calls:
            if call.method == "numpy" and not call.names:
                advice = NUMPY.format(disabling[0].names[0].rpartition(".")[2])
                yield Finding(call.line, "change", ".numpy()", advice)


def is_version_1(program: CheckedProgram) -> bool:
    """Whether `tensorflow` is its version 1 API in a program, with its behaviour."""
    methods = {name.rpartition(".")[2] for call in program.calls for name in call.names}
    return any(each.module.startswith("tensorflow.compat") for each in program.imports) and bool(methods & LEAVING)


def working_names(program: CheckedProgram) -> list[str]:
    """The names of this API in the program that exist here, each once."""
    names = {installed.short(name) for use in program.uses for name in use.names[:1] if _works(name)}
    return sorted(name for name in names if not any(other.startswith(f"{name}.") for other in names))


def _works(name: str) -> bool:
    return installed.is_checked(name) and installed.is_ours(name) and installed.missing(name) is None


def _chosen(names: tuple[str, ...]) -> str | None:
    """The first of these possible names that exists; else the first of all."""
    checked = [name for name in names if installed.is_checked(name)]
    return next((name for name in checked if installed.missing(name) is None), checked[0] if checked else None)


def _of_use(use: NameUse) -> Iterator[Finding]:
    name = _chosen(use.names)
    if name is None or use.optional or (use.is_bare and not installed.raises_when_called(name)):
        return  # the import of a bare name has its finding
    problem = installed.missing(name)
    if problem is None and use.is_attribute:
        problem = installed.not_an_attribute(name)
    if problem is not None and not (use.is_import and installed.raises_when_called(name)):
        level, what, advice = problem
        yield Finding(use.line, level, what, advice)


def _of_call(call: CallSite, keras3: bool, version_1: bool) -> Iterator[Finding]:
    name = _chosen(call.names)
    if name is not None and (refused := installed.is_refused_call(name)) is not None:
        yield Finding(call.line, "refused", installed.short(name), REFUSED[refused])
    target = None if name is None or installed.missing(name) is not None else installed.look_up(name)[0]
    if name is not None and target is not None and callable(target):
        yield from _of_arguments(call, name, target)
    elif call.method is not None and not call.names:
        yield from _of_method(call, call.method, keras3, version_1)


def _of_arguments(call: CallSite, name: str, target: Any) -> Iterator[Finding]:
    is_keras = "keras" in name.split(".")[:3]
    tables = {"optimizers": OPTIMIZER_ARGUMENTS, "layers": LAYER_ARGUMENTS if _is_keras3(target) else {}}
    known = next((table for part, table in tables.items() if is_keras and part in name.split(".")), {})
    for argument in call.keywords:
        if (_is_keras3(target), argument) == (True, "decay"):
            yield Finding(call.line, "note", f"{installed.short(name)}(decay=)", OPTIMIZER_ARGUMENTS["decay"])
        elif argument in known:
            yield Finding(call.line, "change", f"{installed.short(name)}({argument}=)", known[argument])
    try:
        parameters = inspect.signature(target).parameters
    except (TypeError, ValueError):
        return
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    kinds = [parameter.kind for parameter in parameters.values()]
    places = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    if call.positional is not None and call.positional > places and inspect.Parameter.VAR_POSITIONAL not in kinds:
        advice = f"It has {places} arguments by position, and {call.positional} are given."
        yield Finding(call.line, "change", f"{installed.short(name)}()", advice)
    for argument in call.keywords:
        if argument not in parameters and argument not in known:
            advice = f"It has no such argument.{installed.nearest(argument, list(parameters))}"
            yield Finding(call.line, "change", f"{installed.short(name)}({argument}=)", advice)


def _is_keras3(target: Any) -> bool:
    return str(getattr(target, "__module__", "")).startswith("keras.")


def _of_method(call: CallSite, method: str, keras3: bool, version_1: bool) -> Iterator[Finding]:
    if method in METHODS and not (version_1 and method in OF_DATASETS_1):
        yield Finding(call.line, "change", f".{method}()", METHODS[method])
    for argument, value in call.keywords.items():
        if (method, argument) in METHOD_ARGUMENTS and (keras3 or method != "fit"):
            yield Finding(call.line, "change", f".{method}({argument}=)", METHOD_ARGUMENTS[method, argument])
        if (method, argument) == ("compile", "run_eagerly") and not _is_constant(value, False):
            yield Finding(
                call.line, "refused", ".compile(run_eagerly=)", "Models of the engine are compiled. Leave it out."
            )
    if method == "compile" and {"optimizer", "loss"} & call.keywords.keys() and not call.has_double_star:
        given = [name for name in call.keywords if name.endswith("steps_per_execution")]
        if not given:
            yield Finding(call.line, "note", ".compile() without steps_per_execution", STEPS)


def _is_constant(value: ast.expr, constant: object) -> bool:
    return isinstance(value, ast.Constant) and value.value is constant


def _of_option(option: OptionSet) -> Iterator[Finding]:
    name = option.option
    effect = {**EFFECTS, **OLDER}.get(name)
    if effect is None:
        try:
            IpuOptions().get_attribute_metadata(name)
        except ValueError as error:
            yield Finding(option.line, "change", name, str(error).rpartition(": ")[2])
        return
    if effect.kind == "none" and not effect.text.startswith("see "):
        yield Finding(option.line, "note", name, f"It has no effect here: {effect.text}.")
    library = {**LIBRARIES, **REPORTS}.get(name)
    if library is not None and isinstance(option.value, ast.Dict):
        for key in option.value.keys:
            if isinstance(key, ast.Constant):
                yield from _of_flag(key.lineno, name, key.value, library)


def _of_flag(line: int, name: str, flag: object, library: LibraryFlags) -> Iterator[Finding]:
    what = f"{name}[{flag!r}]"
    try:
        check_flags(name, {flag: None}, library)
    except ConfigurationError:
        yield Finding(line, "change", what, f"There is no such flag.{installed.nearest(str(flag), library.known)}")
        return
    if flag not in library.acting:
        yield Finding(line, "note", what, "The flag has no effect here.")
