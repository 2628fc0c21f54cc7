"""Makes `tensorflow.python.ipu`, `keras.ipu`, `tf_keras.ipu` and `ipu.keras` names of this project's packages.

Imported by ipu_hook.pth at every interpreter start, so it stays small and imports nothing but sys.
Nothing else is imported until one of those names is used.
"""

import sys

ModuleType = type(sys)

KERAS_3, TF_KERAS = "keras_ext.names.keras3", "keras_ext.names.tf_keras"
OF_TENSORFLOW = "the one of tf.keras"
TF_ESTIMATOR = "ipu._internal.estimators.tf_estimator"
ALIASES = {
    "tensorflow.python.ipu": "ipu",
    "ipu.keras": OF_TENSORFLOW,  # so it is tensorflow.python.ipu.keras, too, as TensorFlow 2.4 had it
    "keras.ipu": KERAS_3,
    "keras._tf_keras.keras.ipu": KERAS_3,
    "tf_keras.ipu": TF_KERAS,
    "tf_keras.api._v2.keras.ipu": TF_KERAS,
    "tensorflow.keras.ipu": OF_TENSORFLOW,  # TensorFlow loads its Keras a second time under this name
    "ipu_tensorflow_addons": "keras_ext.names.addons",
    "popdist": "ipu._internal.popdist",
    "keras_ext.names.addons.keras.layers": "ipu.keras.layers",
    "keras_ext.names.addons.keras.optimizers": "ipu.keras.optimizers",
    "keras_ext.names.addons.layers": "ipu.keras.layers",
    "keras_ext.names.addons.optimizers": "ipu.keras.optimizers",
    "keras_ext.names.addons.v1.layers.rnn_ops": "ipu.ops.rnn_ops",
    "keras_ext.names.addons.v1.optimizers": "ipu.optimizers",
    "keras_ext.extensions.keras_extension_base": "keras_ext.extensions.model_extensions",
    "keras_ext.extensions.pipeline_stage_assignment": "keras_ext.pipelining.assignments",
    f"{KERAS_3}.extensions": "keras_ext.extensions",
    f"{TF_KERAS}.extensions": "keras_ext.extensions",
    "tensorflow.compiler.plugin": "ipu._internal.plugin",
    "tensorflow.estimator": TF_ESTIMATOR,  # which TensorFlow has no longer
    "tensorflow._api.v2.compat.v1.estimator": TF_ESTIMATOR,
    "tensorflow.compat.v1.estimator": TF_ESTIMATOR,
    "tensorflow.python.estimator": TF_ESTIMATOR,
    "tensorflow_estimator": TF_ESTIMATOR,  # a package of its own, up to TensorFlow 2.15
    "tensorflow_estimator.python": TF_ESTIMATOR,
    "tensorflow_estimator.python.estimator": TF_ESTIMATOR,
    "tensorflow.python.keras.ipu": OF_TENSORFLOW,
    "tensorflow.python.estimator.export": "ipu._internal.estimators.export",
    "tensorflow.python.keras.datasets": "keras.datasets",  # not among what TensorFlow has kept of its old Keras
}
MODULES = (
    *(
        "ops.all_to_all_op",
        "ops.application_compile_op",
        "ops.control_flow_ops",
        "ops.cross_replica_ops",
        "ops.custom_ops",
    ),
    "ops.embedded_runtime",
    *(
        "ops.embedding_ops",
        "ops.functional_ops",
        "ops.grad_util_ops",
        "ops.image_ops",
        "ops.internal_ops",
        "ops.math_ops",
        "ops.nn_ops",
    ),
    *("ops.normalization_ops", "ops.pipelining_ops", "ops.rand_ops", "ops.reduce_scatter_op", "ops.replication_ops"),
    *("ops.rnn_ops", "ops.slicing_ops", "ops.statistics_ops", "ops.summary_ops", "ops.within_replica_ops"),
    *("optimizers.cross_replica_optimizer", "optimizers.gradient_accumulation_optimizer"),
    *("optimizers.ipu_optimizer", "optimizers.map_gradient_optimizer", "optimizers.sharded_optimizer"),
)
"""Modules of `ipu` that are documented with and without their package (Python API, table 18.1)."""
ALIASES |= {f"ipu.{module.partition('.')[2]}": f"ipu.{module}" for module in MODULES}
ALIASES |= {  # of TensorFlow 1's tf.contrib
    "ipu.popnn_normalization": "ipu.ops.normalization_ops",
    "ipu.popnn_rnn": "ipu.ops.rnn_ops",
    "ipu.popops_cross_replica_sum": "ipu.ops.cross_replica_ops",
    "ipu.poprand": "ipu.ops.rand_ops",
}
ALIASES |= {
    f"{package}.python.estimator.{module}": TF_ESTIMATOR
    for package in ("tensorflow", "tensorflow_estimator")
    for module in ("estimator", "estimator_lib", "exporter", "mode_keys", "model_fn", "run_config", "training")
}
ATTRIBUTES = [alias for alias in ALIASES if alias.endswith((".ipu", ".datasets", ".estimator"))]
PARENTS = {
    parent: {alias.rpartition(".")[2]: alias for alias in ATTRIBUTES if alias.rpartition(".")[0] == parent}
    for parent in {alias.rpartition(".")[0] for alias in ATTRIBUTES} - ALIASES.keys()
}
PACKAGES = frozenset({"ipu", "keras_ext"})
OLD = frozenset(
    {
        *(
            "gc_info",
            "gcipuinfo",
            "gcprofile",
            "horovod",
            "libpva",
            "libpvti",
            "popart",
            "poplar",
            "poprun",
            "poptorch",
        ),
        *("popxl", "pva", "pvti", "tensorflow.contrib"),
    }
)
"""Modules of programs for IPUs that are nowhere; the error names what to use."""
ROOTS = frozenset(alias.partition(".")[0] for alias in ALIASES)
LIBRARIES = frozenset({"tensorflow", "keras", "tf_keras"})
"""Libraries whose imports take seconds, in which another process can compile what programs of this project need."""
IMPORT = r"^[ \t]*(?:from[^\n#]+import[ \t]*\([^)]*|(?:from|import)\b[^\n#]*)\bipu\b"
PROGRAM_SIZE = 1 << 18
"""Characters of a program that are read to find its imports."""


def real_name(name: str) -> str | None:
    """The name in this project behind an alias or something below it; None for every other name."""
    alias = name
    while alias and alias not in ALIASES:
        alias = alias.rpartition(".")[0]
    if not alias:
        return None
    real = ALIASES[alias]
    return (keras_of_tensorflow() if real is OF_TENSORFLOW else real) + name[len(alias) :]


def keras_of_tensorflow() -> str:
    """The package for the Keras that `tf.keras` is in this process, by the variable that TensorFlow reads."""
    import os

    return TF_KERAS if os.environ.get("TF_USE_LEGACY_KERAS") in ("true", "True", "1") else KERAS_3


def add_lazy_attribute(module: ModuleType) -> None:
    """Lets attributes like `module.ipu` work without an import statement; the module's own `__getattr__` still runs."""
    aliases = PARENTS[module.__name__]
    inner = module.__dict__.get("__getattr__")

    def __getattr__(name: str) -> object:
        if name in aliases:
            from importlib import import_module

            return import_module(aliases[name])
        if inner is not None:
            return inner(name)
        raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name, obj=module)

    module.__getattr__ = __getattr__


class AliasLoader:
    """Puts the real module under the alias; importlib then returns the real one, with its `__spec__` untouched."""

    @staticmethod
    def create_module(spec: object) -> None:
        """Returns None: importlib makes a module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Imports the real module and makes the alias mean it."""
        from importlib import import_module

        # A finder that was put in front of ours since (pytest's is) would load submodules a second time.
        if sys.meta_path[0] is not AliasFinder:
            sys.meta_path.remove(AliasFinder)
            sys.meta_path.insert(0, AliasFinder)
        name = module.__spec__.name
        sys.modules[name] = import_module(real_name(name))


class AliasFinder:
    """Finds the aliases, and gives their parents the lazy attribute once they have been executed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """A spec for an alias or for a parent of one; None, after one set look-up, for everything else."""
        if name.partition(".")[0] not in ROOTS:
            return None
        if name in LIBRARIES:
            compile_ahead()
        if name in PARENTS:
            return parent_spec(name, path, target)
        real = real_name(name)
        if real is None:
            return None
        from importlib.machinery import ModuleSpec
        from importlib.util import find_spec

        return ModuleSpec(name, AliasLoader, origin=real) if name in ALIASES or find_spec(real) else None


class MissingFinder:
    """The last of the finders: a failed import below this project's names says what to use instead."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        """Returns None, or raises the error of an import statement."""
        if name in OLD or (real_name(name) or name).partition(".")[0] in PACKAGES:
            from ipu._internal.names.finding import refuse

            refuse(name)


def compile_ahead() -> None:
    """Starts the process that compiles codelets beside a program, where the source of the program imports `ipu`."""
    import re

    if re.search(IMPORT, program_source(), re.MULTILINE):
        try:
            from engine.codelets import ahead
            from engine.errors import ConfigurationError
        except ImportError:  # another package of that name: the program's own import says so
            return
        try:
            ahead.start()
        except ConfigurationError:  # the program's first use of the API raises it
            pass


def program_source() -> str:
    """The main program's source, or the cell that a notebook runs; empty where there is none to read."""
    import os

    main = sys.modules.get("__main__")
    file, cells = getattr(main, "__file__", None), getattr(main, "In", None)
    if not isinstance(file, str):
        return cells[-1] if isinstance(cells, list) and cells and isinstance(cells[-1], str) else ""
    try:
        if os.path.isfile(file):  # a pipe might block
            with open(file, encoding="utf-8", errors="replace") as source:
                return source.read(PROGRAM_SIZE)
    except (OSError, ValueError):
        pass
    return ""


def parent_spec(name: str, path: object, target: object) -> object:
    """The other finders' spec of a parent, whose loader adds the lazy attribute after its one execution."""
    for finder in sys.meta_path:
        spec = finder.find_spec(name, path, target) if finder is not AliasFinder else None
        if spec is not None:
            break
    else:
        return None
    loader, execute = spec.loader, spec.loader.exec_module

    def exec_module(module: ModuleType) -> None:
        loader.__dict__.pop("exec_module", None)
        execute(module)
        add_lazy_attribute(module)

    loader.exec_module = exec_module
    return spec


def install() -> None:
    """Puts one finder first and one last, once; parents imported before get their attribute now."""
    if AliasFinder in sys.meta_path:
        return
    sys.meta_path.insert(0, AliasFinder)
    sys.meta_path.append(MissingFinder)
    for name in PARENTS:
        if name in sys.modules:
            add_lazy_attribute(sys.modules[name])


install()
