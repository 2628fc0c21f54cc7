"""Makes `tensorflow.python.ipu`, `keras.ipu`, `tf_keras.ipu` and `ipu.keras` names of this project's packages.

Imported by ipu_hook.pth at every interpreter start, so it stays small and imports nothing but sys, until a library with
one of those names is imported.
"""

import sys

ModuleType = type(sys)
PACKAGES = frozenset({"ipu", "keras_ext"})
ROOTS = PACKAGES | {"ipu_tensorflow_addons", "keras", "popdist", "tensorflow", "tensorflow_estimator", "tf_keras"}
"""The first parts of all names that `_ipu_names.py` lists."""
OLD = frozenset(
    "gc_info gcipuinfo gcprofile horovod libpva libpvti popart poplar poprun poptorch popxl pva pvti".split()
    + ["tensorflow.contrib"]
)
"""Modules of programs for IPUs that are nowhere; the error names what to use."""


class AliasLoader:
    """Puts the real module under the alias; importlib then returns the real one, with its `__spec__` untouched."""

    @staticmethod
    def create_module(spec: object) -> None:
        """Lets importlib make a module, which `exec_module` replaces."""

    @staticmethod
    def exec_module(module: ModuleType) -> None:
        """Imports the real module and makes the alias mean it."""
        from importlib import import_module

        # A finder that was put in front of ours since (pytest's is) would load submodules a second time.
        if sys.meta_path[0] is not AliasFinder:
            sys.meta_path.remove(AliasFinder)
            sys.meta_path.insert(0, AliasFinder)
        sys.modules[module.__spec__.name] = import_module(module.__spec__.origin)


class AliasFinder:
    """Finds the aliases, and gives their parents the lazy attribute once they have been executed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> object:
        """A spec for an alias or for a parent of one; None, after one set look-up, for everything else."""
        if name.partition(".")[0] not in ROOTS:
            return None
        from _ipu_names import ALIASES, PARENTS, parent_spec, real_name

        if name in PARENTS:
            return parent_spec(name, path, target, AliasFinder)
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
        real = ""
        if name.partition(".")[0] in ROOTS:
            from _ipu_names import real_name

            real = (real_name(name) or name).partition(".")[0]
        if name in OLD or real in PACKAGES:
            from ipu._internal.names.finding import refuse

            refuse(name)


def install() -> None:
    """Puts one finder first and one last, once; parents imported before get their attribute now."""
    if AliasFinder in sys.meta_path:
        return
    sys.meta_path.insert(0, AliasFinder)
    sys.meta_path.append(MissingFinder)
    if not ROOTS.isdisjoint(sys.modules):
        from _ipu_names import PARENTS, add_lazy_attribute

        for name in PARENTS.keys() & sys.modules.keys():
            add_lazy_attribute(sys.modules[name])


install()
