"""`python -m ipu`: this machine, the cache of compiled code, and a user's own model beside plain Keras."""
