"""Features that are actions, one after another, on the compiled model."""

from __future__ import annotations

from tests.crossings.plan import FIT, MICRO, THREADS, Draft, action, feature

COMPILE = "note('compile', lambda: compiled(model) and None)"


def _act(d: Draft, label: str, expression: str) -> None:
    d.actions.append(action(label, expression))


@feature("before", "fit", "evaluate")
def before_copying(d: Draft, option: str) -> None:
    """Uses a model before `ipu.accelerate(model)` copies it."""
    expression = FIT if option == "fit" else "model.evaluate(**given(), verbose=0)"
    d.before.append(action(f"{option} before", expression))


@feature("action", weight=6)
def fit(d: Draft, _: str) -> None:
    _act(d, "fit", FIT)


@feature("action", "plain", "dict", weight=2)
def evaluate(d: Draft, option: str) -> None:
    _act(d, "evaluate", f"model.evaluate(**given(), verbose=0{', return_dict=True' if option == 'dict' else ''})")


@feature("action", weight=2)
def predict(d: Draft, _: str) -> None:
    _act(d, "predict", f"note.own(model.predict({d.predicted}, verbose=0))")


@feature("action", "train", "weighted", "test", "predict", weight=3)
def on_batch(d: Draft, option: str) -> None:
    batch = "part(x, 0, m), part(y, 0, m)"
    d.need(option != "weighted" or "outputs" not in d.tags)
    d.need(MICRO not in d.tags)
    # Otherwise tf_keras asks for more batches than the one.
    d.need(d.is_keras3 or "steps per execution" not in d.tags)
    expressions = {
        "train": f"[model.train_on_batch({batch}) for _ in range(3)]",
        "weighted": f"model.train_on_batch({batch}, sample_weight=np.linspace(0, 1, min(m, n)), return_dict=True)",
        "test": f"model.test_on_batch({batch})",
        "predict": "model.predict_on_batch(part(x, 0, m))",
    }
    _act(d, f"{option} on batch", expressions[option])


@feature("action", weight=1.5)
def other_batch_size(d: Draft, _: str) -> None:
    d.need(d.kind != "stateful" and MICRO not in d.tags)
    _act(d, "fit of other batches", "model.fit(part(x, 0, 5), part(y, 0, 5), batch_size=3, shuffle=False, verbose=0)")


@feature("action")
def call(d: Draft, _: str) -> None:
    _act(d, "call", "model(part(x, 0, m))")


@feature("action", "first", "last", "all back", weight=2)
def freeze(d: Draft, option: str) -> None:
    """Sets `trainable` and compiles again."""
    line = {
        "first": "[setattr(layer, 'trainable', False) for layer in model.layers[:2]]",
        "last": "setattr(model.layers[-1], 'trainable', False)",
        "all back": "setattr(model, 'trainable', True)",
    }[option]
    d.actions.append(f"note('freeze', lambda: {line} and None)")
    d.actions.append(f"with note.scope():\n    {COMPILE}")


@feature("action")
def freeze_without_compile(d: Draft, _: str) -> None:
    d.actions.append("note('freeze', lambda: setattr(model.layers[-1], 'trainable', False))")


@feature("action", "in scope", "outside", weight=1.5)
def recompile(d: Draft, option: str) -> None:
    d.actions.append(COMPILE if option == "outside" else f"with note.scope():\n    {COMPILE}")


@feature("action", "rate", "optimizer")
def replace(d: Draft, option: str) -> None:
    """Replaces a part of a compiled model without compiling it again."""
    if option == "rate":
        d.need("schedule" not in d.tags)
        d.actions.append("note('rate', lambda: setattr(model.optimizer, 'learning_rate', 0.001))")
    else:
        d.need(MICRO not in d.tags)
        d.actions.append("note('optimizer', lambda: setattr(model, 'optimizer', K.optimizers.Adam(0.01)))")


@feature("action", "set_weights", "assign", "assign_sub", "scatter", weight=2)
def write_weights(d: Draft, option: str) -> None:
    line = {
        "set_weights": "model.set_weights([w * 0.5 if w.dtype.kind == 'f' else w for w in model.get_weights()])",
        "assign": "[v.assign(v * 0.5) for v in model.trainable_variables] and None",
        "assign_sub": "[v.assign_sub(0.1 * v) for v in model.trainable_variables] and None",
        "scatter": "[variable(v).scatter_sub(tf.IndexedSlices(0 * v[:1] + 0.1, [0])) "
        "for v in model.trainable_variables] and None",
    }[option]
    _act(d, "write", line)


@feature("action", "own loop", "assigning", weight=2)
def foreign_function(d: Draft, option: str) -> None:
    """A tf.function of one's own that writes to the weights."""
    if option == "assigning":
        d.actions += [
            "foreign = tf.function(lambda: [variable(v).assign(0.7 * v) for v in model.trainable_variables] and 0)",
            "note('foreign function', lambda: foreign() and None)",
        ]
        return
    d.need(not d.tags & {"outputs", "classes", "random"})
    d.add_class(
        """
        def own_loop(model):
            @tf.function
            def step():
                with tf.GradientTape() as tape:
                    loss = tf.reduce_mean((tf.cast(part(y, 0, m), f) - tf.cast(model(part(x, 0, m)), f)) ** 2)
                gradients = tape.gradient(loss, model.trainable_variables)
                for g, v in zip(gradients, model.trainable_variables):
                    variable(v).assign_sub(0.1 * tf.convert_to_tensor(g))
                return loss
            return [step() for _ in range(3)]
        """
    )
    _act(d, "own loop", "own_loop(model)")


@feature("action")
def apply_gradients(d: Draft, _: str) -> None:
    """An eager loop with the model's optimizer."""
    d.need(not d.tags & {"outputs", "classes", "random"})
    d.add_class(
        """
        def eager_step(model):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.cast(part(y, 0, m), f) - tf.cast(model(part(x, 0, m)), f)) ** 2)
            variables = model.trainable_variables
            model.optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables))
            return loss
        """
    )
    _act(d, "eager step", "eager_step(model)")


@feature("action", "keras", "h5", "plain", "weights", weight=3)
def save_and_load(d: Draft, option: str) -> None:
    """A file and a model of it, on the engine or ("plain") with plain Keras."""
    if option == "weights":
        d.actions += [
            "file = note.path('.weights.h5')",
            "note('save weights', lambda: model.save_weights(file))",
            "with note.scope():\n    other = note('other', lambda: compiled(make()))",
            action("call of the other", "other(part(x, 0, m))"),
            "note('load weights', lambda: other.load_weights(file))",
            "model = other",
        ]
        return
    load = (
        "model = note('load', lambda: K.models.load_model(file, safe_mode=False), model)"
        if d.is_keras3
        else "model = note('load', lambda: K.models.load_model(file), model)"
    )
    d.actions += [
        f"file = note.path('.{'h5' if option == 'h5' else 'keras'}')",
        "note('save', lambda: model.save(file))",
        load if option == "plain" else f"with note.scope():\n    {load}",
        "note.on_device(model)",
    ]


@feature("action", "model", "saved model", weight=1.5)
def checkpoint(d: Draft, option: str) -> None:
    if option == "saved model":
        save = "model.export(file, verbose=False)" if d.is_keras3 else "model.save(file)"
        d.actions += ["file = note.path('')", f"note('export', lambda: {save} and None)"]
        serve = "serve" if d.is_keras3 else "__call__"
        d.need(not d.tags & {"inputs", "outputs", "unbuilt"})
        _act(d, "served", f"tf.saved_model.load(file).{serve}(tf.convert_to_tensor(part(x, 0, m)))")
        return
    d.actions += [
        "file = note.path('/checkpoint')",
        "kept = tf.train.Checkpoint(model=model, optimizer=model.optimizer)",
        "kept_as = note('save checkpoint', lambda: kept.save(file) and None)",
        action("fit", FIT),
        "note('restore', lambda: kept.restore(tf.train.latest_checkpoint(file.rpartition('/')[0])) and None)",
    ]


@feature("action", "clone", "config")
def clone(d: Draft, option: str) -> None:
    made = "K.models.clone_model(model)" if option == "clone" else "type(model).from_config(model.get_config())"
    d.actions += [
        f"with note.scope():\n    other = note('clone', lambda: compiled({made}))",
        action("call of the other", "other(part(x, 0, m))"),
        "note('copy', lambda: other.set_weights(model.get_weights()))",
        "model = other",
    ]


@feature("action", "alternating", "shared layer", weight=1.5)
def second_model(d: Draft, option: str) -> None:
    """Makes another model, and trains the two alternately."""
    made = "compiled(make())"
    if option == "shared layer":
        d.need(d.kind == "dense" and not d.tags & {"inputs", "outputs", "unbuilt", "classes"})
        made = "compiled(K.Sequential([L.Input((4,)), *[layer for layer in model.layers if layer.weights]]))"
    d.actions += [
        f"with note.scope():\n    other = note.owned({made})"
        if option == "alternating"
        else f"with note.scope():\n    other = note('other', lambda: {made})",
        action("fit of another", FIT.replace("model.", "other.", 1)),
        action("fit", FIT),
        action("fit of another", FIT.replace("model.", "other.", 1)),
        "note.state('other', other)",
    ]


@feature("action", "fit", "predict", "both")
def threads(d: Draft, option: str) -> None:
    """Calls a model in other threads; calls at the same time only read."""
    d.add_class(
        """
        def in_threads(*actions):
            from concurrent.futures import ThreadPoolExecutor
            with ThreadPoolExecutor(len(actions)) as pool:
                return [each.result() for each in [pool.submit(action) for action in actions]]
        """
    )
    predict = f"lambda: note.own(model.predict({d.predicted}, verbose=0))"
    calls = {"fit": f"lambda: {FIT}", "predict": predict, "both": f"{predict}, {predict}"}[option]
    d.need(option != "both" or (d.is_arrays and d.kind != "stateful"))
    _act(d, THREADS, f"in_threads({calls})")


@feature("action", weight=1.5)
def look(d: Draft, _: str) -> None:
    """Reads all variables between other actions."""
    d.actions.append("note.state('state', model)")


@feature("action", "metrics", "states")
def reset(d: Draft, option: str) -> None:
    if option == "states":
        d.need(d.kind == "stateful")
        reset = (
            "[layer.reset_state() for layer in model.layers if hasattr(layer, 'reset_state')] and None"
            if d.is_keras3
            else "model.reset_states()"
        )
        _act(d, "reset states", reset)
    else:
        _act(d, "reset metrics", "model.reset_metrics()")


@feature("action", "labels", "shape", "missing")
def bad_call(d: Draft, option: str) -> None:
    """A call that Keras refuses; later actions find the model as it was."""
    d.need("own step" not in d.tags)
    if option == "labels":  # plain Keras counts the update
        d.need("classes" in d.tags and "sparse" in d.compile["loss"].lower() and "counting" not in d.tags)
    line = {
        "labels": "model.fit(part(x, 0, u), part(y, 0, u) + 7, batch_size=b, verbose=0)",
        "shape": "model.fit(np.zeros((min(u, n), 2, 9, 9, 9), f), part(y, 0, u), batch_size=b, verbose=0)",
        "missing": "model.fit(part(x, 0, u), batch_size=b, verbose=0)",
    }[option]
    _act(d, f"bad {option}", line)


@feature("action", keras=("keras",))
def finish_averages(d: Draft, _: str) -> None:
    d.need("ema" in d.tags)
    _act(d, "finalize", "model.optimizer.finalize_variable_values(model.trainable_variables)")


@feature("action")
def pickled(d: Draft, _: str) -> None:
    d.actions += [
        "import pickle",
        "with note.scope():\n    model = note('pickle', lambda: pickle.loads(pickle.dumps(model)), model)",
    ]
