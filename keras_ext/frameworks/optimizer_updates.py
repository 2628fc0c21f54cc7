"""Keras' updates of variables with fewer operations: SGD, Adam, Nadam, Adagrad, Adadelta, RMSprop and Lion.

The arithmetic, and its order, is Keras'. Each function takes the place of an optimizer's `update_step`, and calls
Keras' own where traced updates are not served.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import tensorflow as tf

from keras_ext.frameworks.traced_updates import (
    add,
    divide,
    is_served,
    made,
    multiply,
    shared_by,
    subtract,
    total,
    totals,
)
from keras_ext.types import Tensor
from keras_ext.wrapping import Original


def sgd_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """SGD's `update_step`. Calls Keras' own for variables and gradients that `is_served` excludes."""
    moments = (optimizer.momentums[optimizer._get_variable_index(variable)],) if optimizer.momentum else ()
    if not is_served(gradient, (float(optimizer.momentum),), *moments, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_of_sgd, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, momentum = shared_by(optimizer, variable.dtype, learning_rate, (optimizer.momentum,), compute)
    scaled = multiply(total(gradient, variable.dtype), rate)
    if not moments:
        return optimizer.assign_sub(variable, scaled)
    moment = subtract(multiply(tf.convert_to_tensor(moments[0]), momentum), scaled)
    optimizer.assign(moments[0], moment)
    optimizer.assign_add(variable, subtract(multiply(moment, momentum), scaled) if optimizer.nesterov else moment)


def _of_sgd(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate and the momentum, which Keras rounds through float32."""
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), tf.cast(optimizer.momentum, dtype)


def adam_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adam's `update_step`; Keras' own where traced updates are not served, and with `amsgrad`."""
    index = optimizer._get_variable_index(variable)
    m, v = optimizer._momentums[index], optimizer._velocities[index]
    numbers = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    if optimizer.amsgrad or not is_served(gradient, numbers, m, v, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_of_adam, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, first, second, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    _, moment, square = _updated_moments(optimizer, gradient, variable, (m, v), (first, second))
    root = add(made("Sqrt", square), epsilon)
    optimizer.assign_sub(variable, divide(multiply(moment, rate), root))


def _updated_moments(
    optimizer: Any, gradient: Tensor, variable: Any, moments: tuple[Any, Any], shares: tuple[Tensor, Tensor]
) -> tuple[Tensor, Tensor, Tensor]:
    """The whole gradient, and the first and second moment, moved by their shares towards it and its square."""
    (m, v), (first, second) = moments, shares
    gradient, squares = totals(gradient, variable.dtype)
    moment, square = tf.convert_to_tensor(m), tf.convert_to_tensor(v)
    moment = add(moment, multiply(subtract(gradient, moment), first))
    square = add(square, multiply(subtract(squares, square), second))
    optimizer.assign(m, moment)
    optimizer.assign(v, square)
    return gradient, moment, square


def _of_adam(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The corrected rate, with betas that Keras rounds through float32, then 1 - beta_1, 1 - beta_2 and epsilon."""
    iteration = tf.cast(tf.convert_to_tensor(optimizer.iterations) + 1, dtype)
    first, second = (1 - tf.pow(tf.cast(beta, dtype), iteration) for beta in (optimizer.beta_1, optimizer.beta_2))
    rate = tf.cast(tf.convert_to_tensor(learning_rate), dtype) * tf.sqrt(second) / first
    numbers = (1 - optimizer.beta_1, 1 - optimizer.beta_2, optimizer.epsilon)
    return rate, *(tf.constant(each, dtype) for each in numbers)


DECAY = 0.96
"""Keras' decay of the momentum schedule."""


def nadam_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Nadam's `update_step`; Keras' own where traced updates are not served."""
    index = optimizer._get_variable_index(variable)
    m, v = optimizer._momentums[index], optimizer._velocities[index]
    numbers = (optimizer.beta_1, optimizer.beta_2, optimizer.epsilon)
    if not is_served(gradient, numbers, m, v, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_of_nadam, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, epsilon, first, second, of_moment, to_moment, of_gradient, to_gradient, of_square = shared_by(
        optimizer, variable.dtype, learning_rate, numbers, compute
    )
    gradient, moment, square = _updated_moments(optimizer, gradient, variable, (m, v), (first, second))
    ahead = add(divide(multiply(of_moment, moment), to_moment), divide(multiply(of_gradient, gradient), to_gradient))
    root = add(made("Sqrt", divide(square, of_square)), epsilon)
    optimizer.assign_sub(variable, divide(multiply(ahead, rate), root))


def _of_nadam(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, epsilon, 1 - beta_1, 1 - beta_2, factor and divisor of the moment and of the gradient, divisor
    of the square. Keras rounds the decay and both betas through float32."""
    step, following = (tf.cast(tf.convert_to_tensor(optimizer.iterations) + n, dtype) for n in (1, 2))
    decay, beta_1, beta_2 = (tf.cast(each, dtype) for each in (DECAY, optimizer.beta_1, optimizer.beta_2))
    now, after = (beta_1 * (1.0 - 0.5 * tf.pow(decay, each)) for each in (step, following))
    product = tf.cast(tf.convert_to_tensor(optimizer._u_product), dtype)
    rate, epsilon = tf.cast(tf.convert_to_tensor(learning_rate), dtype), tf.constant(optimizer.epsilon, dtype)
    divisors = 1 - product * after, 1 - product, 1 - tf.pow(beta_2, step)
    return rate, epsilon, 1 - beta_1, 1 - beta_2, after, divisors[0], 1 - now, divisors[1], divisors[2]


def adagrad_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adagrad's `update_step`; Keras' own where traced updates are not served."""
    accumulator, numbers = optimizer._accumulators[optimizer._get_variable_index(variable)], (optimizer.epsilon,)
    if not is_served(gradient, numbers, accumulator, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_of_adagrad, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(gradient, variable.dtype)
    sums = add(tf.convert_to_tensor(accumulator), squares)
    optimizer.assign(accumulator, sums)
    optimizer.assign_sub(variable, divide(multiply(rate, gradient), made("Sqrt", add(sums, epsilon))))


def _of_adagrad(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate and epsilon."""
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), tf.constant(optimizer.epsilon, dtype)


def adadelta_step(original: Original, optimizer: Any, grad: Tensor, variable: Any, learning_rate: Any) -> None:
    """Adadelta's `update_step`; Keras' own where traced updates are not served."""
    index = optimizer._get_variable_index(variable)
    gradients, steps = optimizer._accumulated_grads[index], optimizer._accumulated_delta_vars[index]
    numbers = (optimizer.rho, optimizer.epsilon)
    if not is_served(grad, numbers, gradients, steps, variable):
        return original(optimizer, grad, variable, learning_rate)
    compute = partial(_of_adadelta, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, kept, taken, epsilon = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(grad, variable.dtype)
    before = tf.convert_to_tensor(steps)
    after = add(multiply(kept, tf.convert_to_tensor(gradients)), multiply(taken, squares))
    optimizer.assign(gradients, after)
    top, bottom = (made("Sqrt", add(each, epsilon)) for each in (before, after))
    step = made("Neg", divide(multiply(top, gradient), bottom))
    # The square of each row's step, where a batch names rows twice.
    square = made("Square", step)
    if isinstance(grad, tf.IndexedSlices):
        square = multiply(made("Square", divide(top, bottom)), squares)
    optimizer.assign(steps, add(multiply(kept, before), multiply(taken, square)))
    optimizer.assign_add(variable, multiply(rate, step))


def _of_adadelta(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, rho, 1 - rho and epsilon."""
    numbers = (optimizer.rho, 1 - optimizer.rho, optimizer.epsilon)
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), *(tf.constant(each, dtype) for each in numbers)


def rmsprop_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """RMSprop's `update_step`; Keras' own where traced updates are not served."""
    index = optimizer._get_variable_index(variable)
    v = optimizer._velocities[index]
    m = optimizer._momentums[index] if optimizer.momentum > 0 else None
    average = optimizer._average_gradients[index] if optimizer.centered else None
    numbers = (optimizer.rho, optimizer.epsilon, float(optimizer.momentum))
    if not is_served(gradient, numbers, *(each for each in (v, m, average) if each is not None), variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_of_rmsprop, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, kept, taken, epsilon, momentum = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, squares = totals(gradient, variable.dtype)
    velocity = spread = add(multiply(kept, tf.convert_to_tensor(v)), multiply(taken, squares))
    optimizer.assign(v, velocity)
    if average is not None:
        mean = add(multiply(kept, tf.convert_to_tensor(average)), multiply(taken, gradient))
        optimizer.assign(average, mean)
        spread = subtract(velocity, made("Square", mean))
    step = divide(multiply(rate, gradient), made("Sqrt", add(spread, epsilon)))
    if m is not None:
        step = add(multiply(momentum, tf.convert_to_tensor(m)), step)
        optimizer.assign(m, step)
    optimizer.assign_sub(variable, step)


def _of_rmsprop(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, rho, 1 - rho, epsilon and the momentum."""
    numbers = (optimizer.rho, 1 - optimizer.rho, optimizer.epsilon, optimizer.momentum)
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), *(tf.constant(each, dtype) for each in numbers)


def lion_step(original: Original, optimizer: Any, gradient: Tensor, variable: Any, learning_rate: Any) -> None:
    """Lion's `update_step`; Keras' own where traced updates are not served."""
    m = optimizer._momentums[optimizer._get_variable_index(variable)]
    numbers = (optimizer.beta_1, optimizer.beta_2)
    if not is_served(gradient, numbers, m, variable):
        return original(optimizer, gradient, variable, learning_rate)
    compute = partial(_of_lion, optimizer, tf.as_dtype(variable.dtype), learning_rate)
    rate, *betas = shared_by(optimizer, variable.dtype, learning_rate, numbers, compute)
    gradient, moment = total(gradient, variable.dtype), tf.convert_to_tensor(m)
    first, second = (
        add(multiply(moment, beta), multiply(gradient, rest))
        for beta, rest in zip(betas[::2], betas[1::2], strict=True)
    )
    optimizer.assign_sub(variable, multiply(rate, made("Sign", first)))
    optimizer.assign(m, second)


def _of_lion(optimizer: Any, dtype: tf.DType, learning_rate: Any) -> tuple[Tensor, ...]:
    """The learning rate, beta_1, 1 - beta_1, beta_2 and 1 - beta_2, with betas rounded through float32 as by Keras."""
    first, second = (tf.cast(beta, dtype) for beta in (optimizer.beta_1, optimizer.beta_2))
    return tf.cast(tf.convert_to_tensor(learning_rate), dtype), first, 1.0 - first, second, 1.0 - second
