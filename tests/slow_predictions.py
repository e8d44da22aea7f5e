"""Loop-by-loop references of predictive methods in plain NumPy float64; tests compare the library with them.

Nothing here imports `halp`, and nothing is clever.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


def gru_cell(x: Array, h: Array, weights: dict[str, Array]) -> Array:
    """One step of a GRU, unit by unit; rows of the weights are reset, update and new gates in this order."""
    size = len(h)
    new_state = np.zeros(size)
    for unit in range(size):
        sums = {}
        for gate, row in (("r", unit), ("z", size + unit), ("n", 2 * size + unit)):
            from_input = sum(weights["ih"][row, i] * x[i] for i in range(len(x))) + weights["b_ih"][row]
            from_state = sum(weights["hh"][row, j] * h[j] for j in range(size)) + weights["b_hh"][row]
            sums[gate] = (from_input, from_state)
        r, z = sigmoid(sum(sums["r"])), sigmoid(sum(sums["z"]))
        n = math.tanh(sums["n"][0] + r * sums["n"][1])
        new_state[unit] = (1 - z) * n + z * h[unit]
    return new_state


def fixed_state_decoding(
    first: Array, state: Array, frames: int, weights: dict[str, Array], out: Array, bias: Array
) -> Array:
    """P&C, FS: each frame is the one before plus a linear map of one GRU step from the encoder's state."""
    x, found = first, []
    for _ in range(frames):
        x = x + out @ gru_cell(x, state, weights) + bias
        found.append(x)
    return np.stack(found)


def free_decoding(state: Array, frames: int, weights: dict[str, Array], out: Array, bias: Array) -> Array:
    """P&C, FW: the GRU runs on from the encoder's state and reads zeros."""
    found = []
    for _ in range(frames):
        state = gru_cell(np.zeros(weights["ih"].shape[1]), state, weights)
        found.append(out @ state + bias)
    return np.stack(found)


def frame_distance(found: Array, target: Array) -> float:
    """Σ over the numbers of a frame of |x̂ − x|, mean over the frames of one clip `(T, N)`."""
    per_frame = [
        sum(abs(found[t, i] - target[t, i]) for i in range(target.shape[1])) for t in range(len(target))
    ]
    return sum(per_frame) / len(per_frame)


def squared_error(found: Array, target: Array, counts: NDArray[np.bool_]) -> float:
    """Mean of (x̂ − x)² over the numbers of the frames of one clip that count; 0 if none does."""
    errors = [
        (found[t, i] - target[t, i]) ** 2
        for t in range(len(target))
        if counts[t]
        for i in range(target.shape[1])
    ]
    return float(sum(errors) / len(errors)) if errors else 0.0


def cosine(x: Array, y: Array) -> float:
    return float(x @ y) / math.sqrt(float(x @ x) * float(y @ y))


def nt_xent_of_pairs(first: Array, second: Array, temperature: float, own: float) -> float:
    """Each of the 2B vectors has to find its partner among all 2B; its similarity with itself is `own`."""
    vectors, count = [*first, *second], len(first)
    losses = []
    for i, x in enumerate(vectors):
        partner = i + count if i < count else i - count
        similarities = [own if i == j else cosine(x, y) for j, y in enumerate(vectors)]
        total = sum(math.exp(value / temperature) for value in similarities)
        losses.append(-math.log(math.exp(similarities[partner] / temperature) / total))
    return sum(losses) / len(losses)


def cross_entropy(logits: Array, label: int) -> float:
    """−log of the label's share of one row of logits."""
    return -math.log(math.exp(logits[label]) / sum(math.exp(value) for value in logits))


def discriminator_loss(true: float, made: float) -> float:
    """−log σ(D(true)) − log(1 − σ(D(made)))."""
    return -math.log(sigmoid(true)) - math.log(1 - sigmoid(made))


def fooling_loss(made: float) -> float:
    """−log σ(D(made))."""
    return -math.log(sigmoid(made))


def displacement_classes(
    places: Array, interval: int, width: float, bins: int, present: NDArray[np.bool_]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Direction and magnitude of x(t − interval) − x(t) for one clip `(T, P, V, C)`, joint by joint."""
    frames, persons, joints, dimensions = places.shape
    direction = np.zeros((frames, persons, joints), dtype=np.int64)
    magnitude = np.zeros((frames, persons, joints), dtype=np.int64)
    for t in range(frames):
        for p in range(persons):
            for v in range(joints):
                moved = places[max(t - interval, 0), p, v] - places[t, p, v]
                for c in range(dimensions):
                    digit = 0 if moved[c] < 0 else 1 if moved[c] == 0 else 2
                    direction[t, p, v] += digit * 3**c
                length = math.sqrt(float(sum(moved[c] ** 2 for c in range(dimensions))))
                if not present[p]:
                    magnitude[t, p, v] = bins + 1
                elif length > 0:
                    magnitude[t, p, v] = min(bins, math.floor(length / width) + 1)
    return direction, magnitude


def displacement_loss(
    logits: Array, classes: NDArray[np.int64], centre: int, weight: float, first_only: bool
) -> float:
    """Mean cross-entropy over joints plus `weight` times that over the centre, of one clip `(T, R, P, V,
    K)`.
    """
    joints, centres = [], []
    for t, r, p, v in np.ndindex(*classes.shape):
        error = cross_entropy(logits[t, r, p, v], int(classes[t, r, p, v]))
        (centres if v == centre and (r == 0 or not first_only) else joints).append(error)
    return sum(joints) / len(joints) + weight * sum(centres) / len(centres)


def joint_tree(
    joints: Array, parents: list[int], up: list[dict[str, Array]], down: list[dict[str, Array]]
) -> Array:
    """SeBiReNet: states of one pose `(V, C)` after the way from the leaves to the root and back."""
    size = up[0]["hh"].shape[1]
    states: dict[int, Array] = {}

    def climb(joint: int) -> None:
        below = [child for child in range(len(parents)) if parents[child] == joint and child != joint]
        for child in below:
            climb(child)
        given = np.concatenate([joints[joint], *(states[child] for child in below)])
        states[joint] = gru_cell(given, np.zeros(size), up[joint])

    def descend(joint: int) -> None:
        given = (
            joints[joint]
            if parents[joint] == joint
            else np.concatenate([joints[joint], states[parents[joint]]])
        )
        states[joint] = gru_cell(given, states[joint], down[joint])
        for child in range(len(parents)):
            if parents[child] == joint and child != joint:
                descend(child)

    for root in (joint for joint, parent in enumerate(parents) if joint == parent):
        climb(root)
        descend(root)
    return np.stack([states[joint] for joint in range(len(parents))])


def half_square(first: Array, second: Array) -> float:
    """½ Σ (x − y)² over everything."""
    return sum(float(x - y) ** 2 for x, y in zip(first.flatten(), second.flatten())) / 2


def bone_lengths(pose: Array, parents: list[int]) -> Array:
    """Length of every bone of one pose `(V, C)`, roots left out."""
    return np.array(
        [
            math.sqrt(sum(float(pose[child, c] - pose[parent, c]) ** 2 for c in range(pose.shape[1])))
            for child, parent in enumerate(parents)
            if child != parent
        ]
    )
