"""Keras under an IPUStrategy. `names` has the packages behind `keras.ipu`, `tf_keras.ipu` and `ipu.keras`."""
