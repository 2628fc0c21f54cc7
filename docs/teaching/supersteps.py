# %% [markdown]
# # Laboratory 1: supersteps on eight tiles
#
# A *bulk-synchronous* machine works in supersteps. In each of them all processors wait for each other (*sync*), send
# each other data (*exchange*), and work on their own memory (*compute*). Graphcore's IPU is such a machine, with 1,472
# processors, called tiles. Ours has eight, so that you can see each of them.
#
# Take 40 minutes. Exercises have an empty cell; [the notebook with solutions](supersteps_solutions.ipynb) is the same
# with answers. Every number and picture below is made by the programs that you run.

# %%
import os

os.environ["TF_POPLAR_FLAGS"] = "--use_ipu_model"  # a chip whose size we choose

import numpy as np
import tensorflow as tf
from tensorflow.python import ipu

from engine.debug import debugging

TILES = 8
config = ipu.config.IPUConfig()
config.auto_select_ipus = 1
config.ipu_model.tiles_per_ipu = TILES
config.configure_ipu_system()
strategy = ipu.ipu_strategy.IPUStrategy()

# %% [markdown]
# ## The superstep
#
# Our first program is a layer of a neural network. `ipu.profile` compiles it for the chip and estimates what each tile
# would do. Look at the last picture: each tile has a lane, and the compute sets follow each other from left to right.


# %%
def layer(x, w):
    return tf.nn.tanh(tf.matmul(x, w))


x = np.random.default_rng(0).random((64, 96), np.float32)
w = np.random.default_rng(1).random((96, 128), np.float32)
report = ipu.profile(tf.function(layer), x, w, path=None)
report

# %% [markdown]
# `report.data["operations"]` has a row for each compute set, with its cycles by phase:

# %%
for row in report.data["operations"]:
    print(
        f"{row['name']:8} on {row['tiles']} tiles:",
        *(f"{phase} {row[phase]:,}" for phase in ("sync", "exchange", "compute")),
    )
report.cycles

# %% [markdown]
# **Exercise 1.** (a) Show that the cycles of the compute sets and the host's transfer add up to
# `report.cycles["total"]`. (b) Which share of the chip's own cycles is each phase? (c) Make the layer four times as
# wide. Which share grows, which shrinks, and why?

# %% tags=["solution"]
phases = ("sync", "exchange", "compute")
sums = {phase: sum(row[phase] for row in report.data["operations"]) for phase in phases}
print(sums, sum(sums.values()) + report.cycles["host"] == report.cycles["total"])


def shares(made):
    whole = sum(made.cycles[phase] for phase in phases)
    return {phase: f"{made.cycles[phase] / whole:.0%}" for phase in phases}


wide = np.random.default_rng(1).random((96, 512), np.float32)
print(shares(report), "wider:", shares(ipu.profile(tf.function(layer), x, wide, path=None)))
# A sync costs the same however much is computed, so its share shrinks. Compute grows with the number of products, and
# exchange more slowly, since each value of x that a tile receives is used for more of them.

# %% [markdown]
# ## An exchange, drawn
#
# The debug executor runs a program on tiles with separate memories, and every exchange is a real copy. It distributes
# work as this machine's workers would, so its tiles hold other parts than the chip's. The bytes are counted, not
# estimated.
#
# Our program divides an array by its sum. A tile can add its own part, but then it needs the sum of all:


# %%
def normalized(x):
    return x / tf.reduce_sum(x)


def traced(function, *arguments):
    """The record of a run on the debug executor."""
    with strategy.scope(), debugging(tiles=TILES) as session:
        strategy.run(tf.function(function), args=arguments)
    return session.records[0]


data = np.random.default_rng(2).random((64, 1024), np.float32)
traced(normalized, data)

# %% [markdown]
# The upper row of a drawing sends, the lower one receives. A line is as wide as its bytes; point at it to read them.
# All tiles send the sums of their two units to tile 0, which adds them up and sends the result back.
#
# `record.supersteps[n].latest` is the matrix behind a drawing: `latest[i, j]` bytes went from tile i to tile j.
#
# **Exercise 2.** Each tile begins with 8 of the 64 rows. Predict the exchanges of `tf.nn.softmax(data)`, which works
# on each row, of `tf.reduce_sum(data, 0)`, which adds up columns, and of `tf.transpose(data)`. Then draw them.

# %% tags=["solution"]
print("softmax:", traced(tf.nn.softmax, data).step_bytes, "bytes, as rows are whole on their tiles")


def columns(x):
    return tf.reduce_sum(x, 0)


record = traced(columns, data)
moved = next(each.latest for each in record.supersteps if each.exchanged)
print("columns:", moved[0, 1], "bytes from each tile to each, which are 8 rows of", moved[0, 1] // 4 // 8, "columns")


def transposed(x):
    return tf.transpose(x)


# The executor counts what a tile's work is allowed to read: a transposition may read everything.
traced(transposed, data)

# %% [markdown]
# ## A sum by a tree
#
# Eight tiles each have an array, and we want the sum. Our operation is a *vertex*: a Python function that is compiled
# and runs on each tile with its own rows. A row of ours is a group of arrays, one after the other.


# %%
def adder(group):
    """The vertex that adds up rows [rows, group * length] to [rows, length]."""

    @ipu.custom_ops.vertex(
        split={"x": "rows", "out": "rows"},
        outputs=lambda x: [tf.TensorSpec((x.shape[0], x.shape[1] // group), x.dtype)],
        cycles=lambda x: 20 + x.shape[0] * (10 + x.shape[1]),
    )
    def add_group(x, out):
        length = out.shape[1]
        for row in range(x.shape[0]):
            for column in range(length):
                out[row, column] = x[row, column]
            for at in range(length, x.shape[1]):
                out[row, at % length] += x[row, at]

    return add_group


ADDERS = {group: adder(group) for group in (2, 4, 8)}


def tree(x, group):
    """The sum of x [arrays, length] over its arrays, `group` of them at once."""
    length, add_group = x.shape[1], ADDERS[group]
    while x.shape[0] > 1:
        x = add_group(tf.reshape(x, (x.shape[0] // group, group * length)))
    return x


def of_pairs(x):
    return tree(x, 2)


def of_all(x):
    return tree(x, 8)


arrays = np.random.default_rng(3).random((8, 8192), np.float32)
traced(of_pairs, arrays)

# %% [markdown]
# In each superstep half of the tiles that still have a sum send it to a neighbour. With a group of eight, one tile
# receives everything:

# %%
traced(of_all, arrays)

# %% [markdown]
# **Exercise 3.** An exchange lasts as long as the tile that receives most, at 4 bytes per cycle; a superstep costs 440
# cycles besides; adding takes a cycle for each value. Calculate the cycles of the tree with groups of 2 and of 8, from
# `received.max()` of the supersteps. For which length of the arrays are both equal? Try one that is shorter.

# %% tags=["solution"]


def cycles_of(record, group):
    found = 0
    for each in record.supersteps:
        if "add_group" in each.name:
            length = arrays.shape[1]
            found += 440 + each.received.max() / 4 + group * length
    return found


print(f"groups of 2: {cycles_of(traced(of_pairs, arrays), 2):,.0f} cycles")
print(f"groups of 8: {cycles_of(traced(of_all, arrays), 8):,.0f} cycles")
# 3 (440 + n + 2 n) = 440 + 7 n + 8 n, so n = 880 / 6: below 147 values the fewer syncs win.

# %% [markdown]
# ## Load imbalance
#
# The slowest tile says how long a superstep lasts. A tile has six worker threads, so eight tiles have 48. What does
# one row more cost?


# %%
def of_rows(rows):
    return ipu.profile(tf.function(ADDERS[2]), np.zeros((rows, 1024), np.float32), path=None)


for rows in (48, 49):
    made = of_rows(rows)
    (row,) = made.data["operations"]
    print(f"{rows} rows on {row['tiles']} tiles: {row['compute']:,} cycles of compute")
of_rows(49)

# %% [markdown]
# With 49 rows, seven tiles have seven rows each, one of their workers has two, and the eighth tile waits.
#
# **Exercise 4.** Plot, or print, the cycles of compute for each row, for 1 to 100 rows. Which batch sizes would you
# choose? A program has 49 rows that it cannot drop: what could it do?

# %% tags=["solution"]
compute = {rows: of_rows(rows).data["operations"][0]["compute"] for rows in range(4, 101, 4)}
found = {rows: cycles / rows for rows, cycles in compute.items()}
best = sorted(found, key=found.get)[:3]
print("cheapest for each row:", {rows: round(found[rows]) for rows in best})
print("of 52 rows:", round(found[52]))
# Multiples of 48 keep all workers busy. 49 rows can be split the other way: halves of rows are 98 smaller pieces of
# work, which 48 workers do in three rounds of half the length, 1.5 in place of 2.
halves = ipu.profile(tf.function(ADDERS[2]), np.zeros((98, 512), np.float32), path=None)
whole = of_rows(49).data["operations"][0]["compute"]
print("98 halves:", halves.data["operations"][0]["compute"], "cycles; 49 rows:", whole)

# %% [markdown]
# Next: [several chips](several_chips.ipynb).
