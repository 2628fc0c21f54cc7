"""Features that are callbacks of `fit`."""

from __future__ import annotations

from tests.crossings.plan import MICRO, Draft, feature


@feature("callback", "epochs", "all", "trained", weight=3)
def logged(d: Draft, option: str) -> None:
    """A callback of one's own that is called at all hooks, at those of epochs, or after each trained batch."""
    hooks = {"epochs": "HOOKS", "all": "HOOKS + BATCH_HOOKS", "trained": "('train_batch_end',)"}
    d.callbacks.append(f"note.log({hooks[option]}, 'callback')")
    d.need(option == "epochs" or MICRO not in d.tags)


def own(d: Draft, name: str, hook: str, *lines: str) -> None:
    """A callback class with one hook."""
    argument = "number, " if hook.startswith(("epoch", "train_batch", "batch", "test_batch")) else ""
    body = "\n        ".join(lines)
    d.add_class(f"class {name}(K.callbacks.Callback):\n    def on_{hook}(self, {argument}logs=None):\n        {body}")
    d.callbacks.append(f"{name}()")
    d.need("batch" not in hook or MICRO not in d.tags)


@feature(
    "callback", "train_batch_begin", "train_batch_end", "epoch_begin", "epoch_end", "train_begin", "batch_end", weight=3
)
def sets_rate(d: Draft, option: str) -> None:
    d.need("schedule" not in d.tags)
    count = "self.count = getattr(self, 'count', 0) + 1"
    own(d, "SetsRate", option, count, "self.model.optimizer.learning_rate = 0.05 / self.count")


@feature("callback", "epoch_end", "train_batch_end", "train_batch_begin", weight=2)
def stops(d: Draft, option: str) -> None:
    count = "self.count = getattr(self, 'count', 0) + 1"
    most = 1 if option == "epoch_end" else 2
    own(d, "Stops", option, count, f"if self.count == {most}:", "    self.model.stop_training = True")


@feature("callback", "epoch_end", "epoch_begin", "train_batch_end", "train_begin", "assign", weight=3)
def changes_weights(d: Draft, option: str) -> None:
    d.need(option != "train_begin" or "unbuilt" not in d.tags)  # plain Keras has no weights then
    if option == "assign":
        own(d, "Assigns", "epoch_end", "for v in self.model.trainable_variables:", "    v.assign(0.5 * v)")
        return
    own(
        d,
        "Halves",
        option,
        "self.model.set_weights([w / 2 if w.dtype.kind == 'f' else w for w in self.model.get_weights()])",
    )


@feature("callback", "samples", "validation")
def changes_arrays(d: Draft, option: str) -> None:
    d.need(d.is_arrays and d.given.startswith("dict(x=x, ") and not d.tags & {"inputs", "outputs"})
    d.need(option == "samples" or "validation" in d.tags)
    own(d, "Changes", "epoch_end", "x[:] = x[::-1].copy()")


@feature("callback", "epoch_end", "train_batch_end")
def freezes(d: Draft, option: str) -> None:
    """Changes `trainable` in training; the change acts at the next compile."""
    own(d, "Freezes", option, "self.model.layers[-1].trainable = False")


@feature("callback", "evaluate", "predict", "predict_on_batch", "call", weight=2)
def looks(d: Draft, option: str) -> None:
    """Evaluates or predicts after each epoch."""
    # Otherwise tf_keras asks for more batches than the one.
    d.need(d.is_keras3 or option != "predict_on_batch" or "steps per execution" not in d.tags)
    d.need(option != "predict_on_batch" or MICRO not in d.tags)
    part = "part(x, 0, m)"
    line = {
        "evaluate": "self.model.evaluate(part(x, 0, u), part(y, 0, u), batch_size=b, verbose=0)",
        "predict": "note.own(self.model.predict(part(x, 0, u), batch_size=b, verbose=0))",
        "predict_on_batch": f"self.model.predict_on_batch({part})",
        "call": f"self.model({part}, training=False)",
    }[option]
    own(d, "Looks", "epoch_end", f"note('looks', lambda: {line})")


@feature("callback", "weights", "slots", "metrics", "rate")
def reads(d: Draft, option: str) -> None:
    """Notes a value after each batch."""
    line = {
        "weights": "self.model.get_weights()",
        "slots": "[np.asarray(v) for v in getattr(self.model.optimizer, 'variables') or []]",
        "metrics": "[np.asarray(m.result()) for m in self.model.metrics]",
        "rate": "[int(np.asarray(self.model.optimizer.iterations)), self.model.optimizer.learning_rate]",
    }[option]
    d.need(option != "slots" or d.is_keras3)
    d.need(option != "metrics" or "own step" in d.tags or not d.is_keras3)
    own(d, "Reads", "train_batch_end", f"note('reads', lambda: {line})")


@feature("callback", "epoch_end", "train_batch_end", "train_begin", "epoch_begin", weight=1.5)
def raises(d: Draft, option: str) -> None:
    own(d, "Raises", option, "raise LookupError('of a callback')")
    d.tags.add("interrupted")


@feature("callback", "epoch_end", "train_batch_end", "test_begin", weight=1.5)
def interrupts(d: Draft, option: str) -> None:
    own(d, "Interrupts", option, "raise KeyboardInterrupt")
    d.tags.add("interrupted")


@feature("callback", "restoring", "plain", "baseline", weight=2)
def early_stopping(d: Draft, option: str) -> None:
    d.need("own step" not in d.tags)
    more = {"restoring": ", restore_best_weights=True", "plain": "", "baseline": ", baseline=0.0"}[option]
    d.callbacks.append(f"K.callbacks.EarlyStopping('loss', patience=1, mode='max'{more})")


@feature("callback", "plateau", "scheduler", weight=2)
def rate_by_epoch(d: Draft, option: str) -> None:
    d.need("schedule" not in d.tags)
    made = {
        "plateau": "ReduceLROnPlateau('loss', factor=0.3, patience=0, mode='max')",
        "scheduler": "LearningRateScheduler(lambda epoch, rate: rate * 0.5)",
    }
    d.callbacks.append(f"K.callbacks.{made[option]}")


@feature("callback", "weights", "model", "by batch", weight=2)
def checkpoints(d: Draft, option: str) -> None:
    ending = ".weights.h5" if option != "model" else ".keras"
    only = "" if option == "model" else ", save_weights_only=True"
    frequency = ", save_freq=2" if option == "by batch" else ""
    d.callbacks.append(f"K.callbacks.ModelCheckpoint(note.path('{ending}'){only}{frequency})")


@feature("callback", "epoch", "2")
def backup(d: Draft, option: str) -> None:
    d.need("unbuilt" not in d.tags)  # which plain Keras 3 refuses
    d.need(option == "epoch" or MICRO not in d.tags)
    frequency = "'epoch'" if option == "epoch" else option
    d.callbacks.append(f"K.callbacks.BackupAndRestore(note.path(''), save_freq={frequency})")


@feature("callback", "TerminateOnNaN", "CSVLogger", "LambdaCallback", weight=1.5)
def of_keras(d: Draft, option: str) -> None:
    made = {
        "TerminateOnNaN": "TerminateOnNaN()",
        "CSVLogger": "CSVLogger(note.path('.csv'))",
        "LambdaCallback": "LambdaCallback(on_epoch_end=lambda e, logs: note('lambda', lambda: [e, dict(logs)]))",
    }
    d.callbacks.append(f"K.callbacks.{made[option]}")


@feature("callback", keras=("keras",))
def swap_averages(d: Draft, _: str) -> None:
    d.need("ema" in d.tags and "wrapped optimizer" not in d.tags)
    d.callbacks.append("K.callbacks.SwapEMAWeights()")
