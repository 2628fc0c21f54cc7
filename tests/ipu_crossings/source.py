"""The source of a plan's program: a function `program(tf, ipu, note)` of a graph, for the API or its oracle."""

from __future__ import annotations

import textwrap

from tests.ipu_crossings.plan import Plan

BATCH, STEPS = 4, 6
OPTIMIZERS = {
    "sgd": "tf.train.GradientDescentOptimizer(rate)",
    "momentum": "tf.train.MomentumOptimizer(rate, 0.9)",
    "nesterov": "tf.train.MomentumOptimizer(rate, 0.9, use_nesterov=True)",
    "adam": "tf.train.AdamOptimizer(rate, epsilon=1e-2)",
    "rmsprop": "tf.train.RMSPropOptimizer(rate, momentum=0.5, epsilon=1e-2)",
    "adagrad": "tf.train.AdagradOptimizer(rate)",
    "own": "Own(rate)",
}
OWN = """
class Own(tf.train.Optimizer):
    def __init__(self, rate):
        super().__init__(False, 'Own')
        self.rate = rate
    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        updates = []
        for g, v in grads_and_vars:
            if g is None:
                continue
            m = state(v.op.name + '/m', v.shape.as_list())
            new = 0.8 * m + tf.convert_to_tensor(g)
            updates += [m.assign(new), v.assign_sub(self.rate * new / (0.5 + tf.norm(new)))]
        with tf.control_dependencies(updates):  # the rate is read before the step that it depends on is counted
            return tf.group(*updates) if global_step is None else tf.assign_add(global_step, 1).op
"""
LAYERS = {
    "dense": "return tf.tanh(dense(x, 6, name))",
    "outlined": "return ipu.outlined_function(lambda x: tf.tanh(dense(x, 6, name)))(x)",
    "outlined_twice": "with tf.variable_scope(name):\n    return twice(x)",
    "conv": "x = tf.reshape(x, [-1, 2, 3, int(x.shape[-1]) // 6])\n"
    "x = tf.nn.conv2d(x, weights(name, [2, 2, int(x.shape[-1]), 2]), [1, 1, 1, 1], 'SAME')\n"
    "return tf.reshape(tf.nn.relu(x), [-1, 12])",
    "lstm": "x = tf.transpose(tf.reshape(x, [-1, 3, int(x.shape[-1]) // 3]), [1, 0, 2])\n"
    "out, state = ipu.rnn_ops.PopnnLSTM(6, name=name, seed=4)(x)\nreturn out[-1] + state.c",
    "gru": "x = tf.transpose(tf.reshape(x, [-1, 3, int(x.shape[-1]) // 3]), [1, 0, 2])\n"
    "return ipu.rnn_ops.PopnnGRU(6, name=name, seed=4)(x)[0][-1]",
    "table": "ids = tf.cast(tf.abs(x[:, :2] * 3.0), tf.int32) % 7\n"
    "rows = ipu.embedding_ops.embedding_lookup(weights(name, [7, 3]), ids)\n"
    "return tf.reshape(rows, [-1, 6]) + 0.1 * dense(x, 6, name + 'd')",
    "host_table": "ids = tf.cast(tf.abs(x[:, :2] * 3.0), tf.int32) % 7\n"
    "return tf.reshape(table.lookup(ids), [B, 6]) + 0.1 * dense(x, 6, name + 'd')",
    "tf_layers": "initial = tf.glorot_uniform_initializer(5)\n"
    "return tf.layers.dense(x, 6, tf.tanh, name=name, kernel_initializer=initial)",
    "keras": "initial = tf.keras.initializers.glorot_uniform(3)\n"
    "layer = tf.keras.layers.Dense(6, 'tanh', name=name, kernel_initializer=initial)\n"
    "return layer(x)",
}
NORMS = {
    "none": "return x",
    "group": "return ipu.normalization_ops.group_norm(x, groups=2, scope=name, epsilon=1e-3)",
    "layer": "return ipu.normalization_ops.layer_norm(x, scope=name, epsilon=1e-3)",
    "batch": "return tf.layers.batch_normalization(x, training=training, momentum=0.7, name=name)",
}
LOSSES = {
    "mse": "tf.losses.mean_squared_error(y, x[:, :2])",
    "cross_entropy": "tf.losses.softmax_cross_entropy(tf.nn.softmax(y), x[:, :2])",
    "huber": "tf.losses.huber_loss(y, x[:, :2], delta=0.4)",
}
COMMON = """
rng = np.random.RandomState(5)
B, R = {batch}, {replicas}
X = rng.randn(240, 6).astype(np.float32)
Y = np.stack([np.sin(X.sum(1)), X[:, 0] * X[:, 1]], 1).astype(np.float32)
def weights(name, shape):
    return tf.get_variable(name, shape, initializer=tf.glorot_uniform_initializer(len(name)), use_resource=True)
def state(name, shape):
    zeros = tf.zeros_initializer()
    return tf.get_variable(name, shape, initializer=zeros, trainable=False, use_resource=True)
def in_net():
    return tf.variable_scope('net', reuse=tf.AUTO_REUSE)
def dense(x, units, name):
    with tf.variable_scope(name):
        b = tf.get_variable('b', [units], initializer=tf.zeros_initializer(), use_resource=True)
        return tf.matmul(x, weights('w', [int(x.shape[-1]), units])) + b
@ipu.outlined_function
def twice(x):
    return tf.tanh(dense(x, 6, 'inner'))
def layer(x, name, training):
{layer}
def norm(x, name, training):
{norm}
def data():
{data}
"""
DATA = {
    "slices": "return tf.data.Dataset.from_tensor_slices((X, Y)).batch(B, drop_remainder=True).repeat()",
    "map": "rows = tf.data.Dataset.from_tensor_slices((X, Y)).map(lambda x, y: (x * 0.9, tf.tanh(y)))\n"
    "return rows.batch(B, drop_remainder=True).repeat()",
    "generator": "def rows():\n    for k in range(0, 240, B):\n        yield X[k:k + B], Y[k:k + B]\n"
    "return tf.data.Dataset.from_generator(rows, (tf.float32, tf.float32), ([B, 6], [B, 2])).repeat()",
    "dict": "return tf.data.Dataset.from_tensor_slices({'x': X, 'y': Y}).batch(B, drop_remainder=True).repeat()",
}


def source(plan: Plan) -> str:
    """The function of a plan."""
    parts = [
        COMMON.format(
            batch=BATCH,
            replicas=plan["replicas"],
            layer=_in(LAYERS[plan["layer"]]),
            norm=_in(NORMS[plan["norm"]]),
            data=_in(DATA[plan["data"]]),
        ),
        OWN if plan["optimizer"] == "own" else "",
        _model(plan),
        _training(plan),
    ]
    parts.append(_estimator(plan) if plan.is_estimator else _compiled(plan))
    return "def program(tf, np, ipu, note, folder):\n" + textwrap.indent("\n".join(parts), "    ")


def _in(text: str, levels: int = 1) -> str:
    return textwrap.indent(text, "    " * levels)


def _model(plan: Plan) -> str:
    count = int(plan["stages"]) if plan.is_pipeline else 2
    stages = "\n".join(
        f"def stage{k}(x, y, training=True):\n"
        f"    with in_net(), ipu.scopes.ipu_shard({k if _is_sharded(plan) else 0}):\n"
        f"        return norm(layer(x, 'layer{k}', training), 'norm{k}', training), y"
        for k in range(count - 1)
    )
    last = f"""
def head(x, y, training=True):
    with in_net(), ipu.scopes.ipu_shard({count - 1 if _is_sharded(plan) else 0}):
        x = dense(layer(x, 'layer{count - 1}', training), 2, 'head')
    return {LOSSES[plan["loss"]]}, x
STAGES = [{", ".join(f"stage{k}" for k in range(count - 1))}, head]
def forward(x, y, training=True):
    for stage in STAGES:
        x, y = stage(x, y, training)
    return x, y
"""
    return stages + last


def _is_sharded(plan: Plan) -> bool:
    return plan["wrapper"] == "sharded" and not plan.is_pipeline


def _training(plan: Plan) -> str:
    rates = {
        "constant": "0.1",
        "fed": "rate",
        "step": "tf.train.exponential_decay(0.2, tf.cast(tf.train.get_or_create_global_step(), tf.float32), 2, 0.7)",
    }
    lines = [f"rate = {rates[plan['rate']]}", f"optimizer = {OPTIMIZERS[plan['optimizer']]}"]
    if plan["wrapper"] == "map":
        lines.append("optimizer = ipu.optimizers.MapGradientOptimizer(optimizer, lambda g, v: g * 0.5 + 0.01 * v)")
    if plan["wrapper"] == "sharded":
        lines.append("optimizer = ipu.optimizers.ShardedOptimizer(optimizer)")
    if plan["replicas"] != "1" and (plan.is_pipeline or plan["accumulate"] == "1"):
        lines.append("optimizer = ipu.optimizers.CrossReplicaOptimizer(optimizer)")
    if not plan.is_pipeline:
        method = f"ipu.gradient_accumulation.GradientAccumulationReductionMethod.{plan['reduction'].upper()}"
        if plan["accumulate"] != "1":
            name = "CrossReplicaGradientAccumulation" if plan["replicas"] != "1" else "GradientAccumulation"
            lines.append(
                f"optimizer = ipu.optimizers.{name}OptimizerV2(\n"
                f"    optimizer, {plan['accumulate']}, reduction_method={method})"
            )
    step = "tf.train.get_or_create_global_step()" if plan["rate"] == "step" and not plan.is_estimator else "None"
    apply = f"train = optimizer.minimize(loss, global_step={step})"
    if plan["wrapper"] == "clip":
        apply = (
            "pairs = [(g, v) for g, v in optimizer.compute_gradients(loss) if g is not None]\n"
            "clipped, _ = tf.clip_by_global_norm([tf.convert_to_tensor(g) for g, _ in pairs], 0.5)\n"
            f"train = optimizer.apply_gradients(zip(clipped, [v for _, v in pairs]), global_step={step})"
        )
    states = {
        "none": "return train",
        "moving": "with tf.control_dependencies([train]):\n"
        "    return tf.train.ExponentialMovingAverage(0.5).apply(tf.trainable_variables())",
        "counter": "count = state('count', [])\n"
        "with tf.control_dependencies([train]):\n    return count.assign_add(loss).op",
        "cond": "big = state('big', [])\n"
        "with tf.control_dependencies([train]):\n"
        "    kept = lambda: tf.identity(big.read_value())\n"
        "    return tf.cond(loss > 0.4, lambda: tf.identity(big.assign_add(loss)), kept).op",
    }
    train = "\n".join(
        [
            *lines,
            "with tf.control_dependencies(tf.get_collection(tf.GraphKeys.UPDATE_OPS)):",
            _in(apply),
            states[plan["state"]],
        ]
    )
    return f"def make(rate):\n{_in(chr(10).join(lines))}\n    return optimizer\ndef train(loss, rate):\n{_in(train)}"


def _accumulation(plan: Plan) -> int:
    return 2 * int(plan["stages"]) * int(plan["accumulate"])


def _pipeline_arguments(plan: Plan) -> str:
    method = f"ipu.gradient_accumulation.GradientAccumulationReductionMethod.{plan['reduction'].upper()}"
    return f"gradient_accumulation_count={_accumulation(plan)}, reduction_method={method}, " + (
        f"pipeline_schedule=ipu.pipelining_ops.PipelineSchedule.{plan['schedule']}"
    )


def _configured(plan: Plan) -> str:
    ipus = int(plan["replicas"]) * (int(plan["stages"]) if plan.is_pipeline else 2 if _is_sharded(plan) else 1)
    ipus = 1 << (ipus - 1).bit_length()  # a device has a power of two
    recompute = "config.allow_recompute = True\n" if plan["recompute"] == "yes" else ""
    return (
        f"config = ipu.config.IPUConfig()\nconfig.auto_select_ipus = {ipus}\n{recompute}config.configure_ipu_system()"
    )


def _compiled(plan: Plan) -> str:
    outfeeds = {"dict": "{'loss': loss, 'x': x}", "none": "", "last": "loss"}
    sent = outfeeds.get(plan["outfeed"], "loss")
    mode = "outfeed_mode=ipu.ipu_outfeed_queue.IPUOutfeedMode.LAST" if plan["outfeed"] == "last" else ""
    body = f"""
def body(total, *e{", **n" if plan["data"] == "dict" else ""}):
    loss, x = forward({"**n" if plan["data"] == "dict" else "*e"})
    with tf.control_dependencies([train(loss, rate)]):
        return total + loss{f", outfeed.enqueue({sent})" if sent else ""}
"""
    loops = {
        "loop": f"loop = lambda: ipu.loops.repeat({STEPS}, body, [0.0], infeed)",
        "while": f"def counted(n, total, *e, **k):\n    return (n + 1, *outputs(body(total, *e, **k)))\n"
        f"loop = lambda: ipu.loops.while_loop(lambda n, total: n < {STEPS}, counted, [0, 0.0], infeed)[1]",
        "single": "def loop(x, y):\n    loss, _ = forward(x, y)\n    return loss, train(loss, rate)",
    }
    if plan["kind"] == "pipeline":
        extra = ", outfeed_loss=True" if plan["outfeed"] == "loss" else ""
        extra += ", accumulate_outfeed=True" if plan["outfeed"] == "accumulated" else ""
        made = f"""
def optimizer_function(loss{", x" if plan["outfeed"] == "dict" else ""}):
    return ipu.pipelining_ops.OptimizerFunctionOutput(make(rate), loss)
def last(*arguments, **named):
    loss, x = head(*arguments, **named)
    return {"loss, x" if plan["outfeed"] == "dict" else "loss"}
loop = lambda: ipu.pipelining_ops.pipeline(
    [*STAGES[:-1], last], repeat_count=2, infeed_queue=infeed, outfeed_queue=outfeed,
    optimizer_function=optimizer_function, {_pipeline_arguments(plan)}{extra})
"""
    else:
        made = (
            body * (plan["kind"] != "single")
            + "\ndef outputs(found):\n    return found if isinstance(found, tuple) else (found,)\n"
            + loops[plan["kind"]]
        )
    single = plan["kind"] == "single"
    inputs = "[fx, fy]" if single else "[]"
    fed = "rate: 0.1 / (1 + run)" + (", fx: X[run * B:run * B + B], fy: Y[run * B:run * B + B]" if single else "")
    rate = (
        "rate = tf.placeholder(tf.float32, [])"
        if plan["rate"] == "fed"
        else "rate = tf.placeholder_with_default(0.1, [])"
    )
    table = (
        "table = ipu.embedding_ops.create_host_embedding('table', [7, 3], tf.float32, "
        "optimizer_spec=ipu.embedding_ops.HostEmbeddingOptimizerSpec(0.1), "
        "initializer=tf.random_uniform_initializer(-1, 1, seed=2))"
        if plan["layer"] == "host_table"
        else ""
    )
    has_results = not single and (plan["outfeed"] != "none" or plan["kind"] == "pipeline")
    after = {
        "nothing": "",
        "again": "",
        "evaluate": "note('evaluated', session.run(evaluation, {ex: X[-B:], ey: Y[-B:]}))",
        "predict": "session.run(einitializer)\nsession.run(predictions)\nnote('predicted', session.run(predicted))",
        "restore": "path = saver.save(session, folder + '/saved')\nsession.run(tf.global_variables_initializer())\n"
        "saver.restore(session, path)\nrun_all(session, 1)",
    }[plan["after"]]
    evaluation = {
        "evaluate": "ex, ey = tf.placeholder(tf.float32, [B, 6]), tf.placeholder(tf.float32, [B, 2])\n"
        "evaluation = ipu.ipu_compiler.compile(lambda x, y: forward(x, y, False), [ex, ey])",
        "predict": "einfeed, eoutfeed = ipu.ipu_infeed_queue.IPUInfeedQueue(tf.data.Dataset.from_tensor_slices((X, Y))"
        ".batch(B, drop_remainder=True)), ipu.ipu_outfeed_queue.IPUOutfeedQueue()\n"
        "predictions = ipu.ipu_compiler.compile(lambda: ipu.loops.repeat(3, lambda x, y: "
        "eoutfeed.enqueue(forward(x, y, False)), [], einfeed))\n"
        "predicted, einitializer = eoutfeed.dequeue(), einfeed.initializer",
    }.get(plan["after"], "")
    return f"""
{rate}
{table}
infeed = ipu.ipu_infeed_queue.IPUInfeedQueue(data())
outfeed = ipu.ipu_outfeed_queue.IPUOutfeedQueue({mode})
fx, fy = tf.placeholder(tf.float32, [B, 6]), tf.placeholder(tf.float32, [B, 2])
{made}
{_configured(plan)}
with ipu.scopes.ipu_scope('/device:IPU:0'):
    program = ipu.ipu_compiler.compile({"loop, " + inputs})
{_in(evaluation, 0)}
initializer = infeed.initializer
{"dequeued = outfeed.dequeue()" if has_results else ""}
saver = tf.train.Saver()
def run_all(session, runs):
    for run in range(runs):
        found = session.run(program, {{{fed}}})
        if R == 1:  # else it is that of one replica
            note('run', found)
        {"note('outfed', session.run(dequeued))" if has_results else "pass"}
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(initializer)
    with {"table.register(session)" if plan["layer"] == "host_table" else "note.nothing()"}:
        run_all(session, {3 if plan["after"] == "again" else 2})
{_in(after)}
    note.variables(session)
"""


def _estimator(plan: Plan) -> str:
    """The source of an estimator's training, evaluation and predictions."""
    model = f"""
def model_fn(mode):
    def first(features, labels=None):
        return stage0(features, tf.zeros([B, 2]) if labels is None else labels)
    def last(x, y):
        loss, x = head(x, y)
        return {{'x': x}} if mode == 'infer' else (loss if mode == 'train' else (loss, x, y))
    return ipu.ipu_pipeline_estimator.IPUPipelineEstimatorSpec(mode, [first, *STAGES[1:-1], last],
        optimizer_function=lambda loss: ipu.pipelining_ops.OptimizerFunctionOutput(make(0.1), loss),
        eval_metrics_fn=lambda loss, x, y: {{'loss': loss, 'mae': tf.metrics.mean_absolute_error(y, x)}},
        {_pipeline_arguments(plan)})
"""
    if plan["kind"] == "estimator":
        model = """
def model_fn(features, labels, mode):
    loss, x = forward(features, tf.zeros([B, 2]) if labels is None else labels, mode == 'train')
    if mode == 'infer':
        return tf.estimator.EstimatorSpec(mode, predictions={'x': x})
    if mode == 'eval':
        metrics = {'mae': tf.metrics.mean_absolute_error(labels, x)}
        return tf.estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train(loss, 0.1))
"""
    pipelined = plan["kind"] == "pipeline_estimator"
    per_loop = _accumulation(plan) if pipelined else 6
    shards = plan["stages"].replace("3", "4") if pipelined else "2" if _is_sharded(plan) else "1"
    return f"""
{model}
config = ipu.config.IPUConfig()
config.auto_select_ipus = {shards}
{"config.allow_recompute = True" if plan["recompute"] == "yes" else ""}
run = ipu.ipu_run_config.RunConfig(model_dir=folder, ipu_run_config=ipu.ipu_run_config.IPURunConfig(
    iterations_per_loop={per_loop}, num_shards={shards}, ipu_options=config))
kind = ipu.ipu_pipeline_estimator.IPUPipelineEstimator if {pipelined} else ipu.ipu_estimator.IPUEstimator
estimator = kind(model_fn, config=run)
def predictions():
    return tf.data.Dataset.from_tensor_slices(X[:{per_loop * BATCH}]).batch(B, drop_remainder=True)
estimator.train(data, steps={2 * per_loop})
note('evaluated', estimator.evaluate(data, steps={per_loop}))
{f"estimator.train(data, steps={per_loop})" if plan["after"] == "again" else ""}
note('predicted', [each['x'] for each in estimator.predict(predictions)])
note('variables', {{note.named(name): estimator.get_variable_value(name) for name in estimator.get_variable_names()
                   if name.startswith('net') and 'accum' not in name.lower()}})
"""
