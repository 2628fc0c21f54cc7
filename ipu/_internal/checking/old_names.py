"""Names, methods and arguments of old programs that no installed package explains, and their replacements."""

from __future__ import annotations

from collections.abc import Mapping

from ipu._internal.checking.finding import Level

MODULES: Mapping[str, tuple[Level, str]] = {
    "tensorflow.contrib.ipu": ("change", "tf.contrib is gone. Write `from tensorflow.python import ipu`."),
    "tensorflow.contrib.cudnn_rnn": ("change", "Use keras.layers.LSTM and GRU, or ipu.rnn_ops."),
    "tensorflow.contrib.rnn": (
        "change",
        "tf.contrib is gone. Use tf.compat.v1.nn.rnn_cell, with TF_USE_LEGACY_KERAS=1.",
    ),
    "tensorflow.contrib.layers": ("change", "tf.contrib is gone. Use keras.layers, or tf.compat.v1.layers."),
    "tensorflow.contrib": ("change", "tf.contrib is gone. TensorFlow 2 has most of it in tf, tf.compat.v1 or Keras."),
    "tensorflow.examples": ("change", "TensorFlow 2 has no examples. Use keras.datasets or scikit-learn's data."),
    "tensorflow_addons": ("change", "It ended with TensorFlow 2.15. Keras has most of its layers and optimizers."),
    "horovod": ("change", "Write `from tensorflow.python.ipu import horovod`, and start it by `python -m ipu.run`."),
    "poptorch": ("refused", "PyTorch programs do not run here, only those of TensorFlow and Keras."),
    "popart": ("refused", "PopART programs do not run here, only those of TensorFlow and Keras."),
    "popxl": ("refused", "PopXL programs do not run here, only those of TensorFlow and Keras."),
    "poplar": ("refused", "There is no Poplar. Vertices in Python: ipu.custom_ops.vertex."),
    **dict.fromkeys(
        ("gcprofile", "libpva", "libpvti", "pva", "pvti"),
        ("change", "There are no profiles of Poplar. ipu.profile(model) writes a report."),
    ),
    **dict.fromkeys(("gc_info", "gcipuinfo"), ("change", "There are no chips. `python -m ipu` shows this machine.")),
    "poprun": ("change", "`python -m ipu.run --processes N program.py` starts the processes."),
}
"""Modules by the longest name that covers them; installed modules count before this table."""

REFUSED: Mapping[str, str] = {
    "custom_ops.precompiled_user_op": "There is no Poplar. Write the vertex in Python: ipu.custom_ops.vertex.",
}
"""Names that exist so that their arguments are checked, but whose calls are all refused."""

OPTIMIZER_ARGUMENTS: Mapping[str, str] = {
    "lr": "Keras calls it learning_rate.",
    "decay": "Keras ignores it. Give learning_rate=keras.optimizers.schedules.InverseTimeDecay(...).",
}
LAYER_ARGUMENTS: Mapping[str, str] = {
    "batch_input_shape": "Keras 3 has none. Begin the model with keras.Input(batch_shape=...).",
    "fused": "Keras 3 has none. Leave it out.",
    "time_major": "Keras 3 has none. Transpose the data, or use ipu.rnn_ops.",
}
"""Arguments that layers of Keras 3 refuse; those of tf_keras take them."""

METHODS: Mapping[str, str] = {
    "evaluate_generator": "evaluate takes generators.",
    "experimental_run_v2": "Call run of the strategy.",
    "fit_generator": "fit takes generators.",
    "make_initializable_iterator": "Call tf.compat.v1.data.make_initializable_iterator(dataset).",
    "make_one_shot_iterator": "Call tf.compat.v1.data.make_one_shot_iterator(dataset).",
    "predict_classes": "Call predict(x).argmax(axis=-1).",
    "predict_generator": "predict takes generators.",
    "predict_proba": "Call predict.",
}
"""Methods that no object has any longer."""

OF_DATASETS_1 = frozenset({"make_initializable_iterator", "make_one_shot_iterator"})
"""Methods that data sets of tf.compat.v1 have."""

METHOD_ARGUMENTS: Mapping[tuple[str, str], str] = {
    ("compile", "experimental_steps_per_execution"): "Keras calls it steps_per_execution.",
    ("fit", "max_queue_size"): "fit of Keras 3 has none. Leave it out, or give it to keras.utils.PyDataset.",
    ("fit", "use_multiprocessing"): "fit of Keras 3 has none. Leave it out, or give it to keras.utils.PyDataset.",
    ("fit", "workers"): "fit of Keras 3 has none. Leave it out, or give it to keras.utils.PyDataset.",
}
