"""Estimators: training, evaluation, prediction and export of a model function, in monitored sessions."""
