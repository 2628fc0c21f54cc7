"""Operations of the plugin."""

from ipu._internal.names.namespace import public_names

__getattr__, __dir__ = public_names(
    __name__,
    (
        *("gen_ipu_ops", "gen_pop_datastream_ops", "gen_popnn_ops", "gen_popops_ops", "gen_poprand_ops"),
        "gen_poputil_ops",
    ),
)
