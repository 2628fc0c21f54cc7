"""Names that only TensorFlow's own `tf.estimator` had, and their replacements."""

_MODEL_FUNCTION = "a model function with ipu.ipu_estimator.IPUEstimator"
_HEAD = "a loss and eval_metric_ops in the model function"

OF_ESTIMATORS = {
    **{
        f"tf.estimator.{kind}{model}": _MODEL_FUNCTION
        for kind in ("Baseline", "BoostedTrees", "DNN", "DNNLinearCombined", "Linear")
        for model in ("Classifier", "Estimator", "Regressor")
    },
    **{
        f"tf.estimator.{kind}Head": _HEAD
        for kind in ("", "BinaryClass", "LogisticRegression", "MultiClass", "Multi", "MultiLabel", "PoissonRegression")
    },
    "tf.estimator.RegressionHead": _HEAD,
    "tf.estimator.add_metrics": "eval_metric_ops of the EstimatorSpec",
    "tf.estimator.classifier_parse_example_spec": "tf.feature_column.make_parse_example_spec",
    "tf.estimator.experimental": "a SessionRunHook whose after_run calls run_context.request_stop()",
    "tf.estimator.inputs": "tf.data.Dataset.from_tensor_slices with repeat() and batch(size, drop_remainder=True)",
    "tf.estimator.regressor_parse_example_spec": "tf.feature_column.make_parse_example_spec",
    "tf.estimator.tpu": "ipu.ipu_estimator",
}
