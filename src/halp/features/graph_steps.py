"""The steps of `halp.data.normalise` as torch operations, for `halp.features.prepare_graph`."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from halp.core.errors import InputError
from halp.data.cleaning import LONGEST_ABSENCE, anchor_joint, trunk_ends
from halp.data.normalise import ANCHORS, MIDDLE, STANDING
from halp.skeleton import Topology


def pick(x: Tensor, index: Tensor, dim: int) -> Tensor:
    """Entries of `x` along `dim` by an index `(B, n)`, or with further leading axes of `x`; broadcast."""
    index = index.unsqueeze(1) if dim == 2 else index
    index = index.reshape(*index.shape, *[1] * (x.ndim - index.ndim))
    return x.gather(dim, index * torch.ones_like(x.narrow(dim, 0, 1), dtype=torch.int64))


def seen_joints(x: Tensor) -> Tensor:
    """Which joints are present `(…, V)`; missing ones are all zeros."""
    return (x != 0).any(-1)


def present(x: Tensor) -> Tensor:
    """Which persons are present `(B, T, P)`."""
    return (x != 0).flatten(3).any(3)


def motion_energy(x: Tensor) -> Tensor:
    """Standard deviation over the joints of frames with the person, summed over the coordinates `(B, P)`."""
    there = present(x).to(x.dtype)
    weight = there[..., None, None]
    number = (there.sum(1) * x.shape[3]).clamp(min=1)[..., None]
    mean = (x * weight).sum((1, 3)) / number
    spread = ((x - mean[:, None, :, None]).square() * weight).sum((1, 3)) / number
    return spread.sqrt().sum(-1)


def neighbours(seen: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Along time `(B, T, …)`: where something was last seen and is next seen, whether it was, and the k-th place.

    Of what is seen, both are the frame itself.
    """
    time = time_like(seen)
    upto = seen.to(torch.int64).cumsum(1)
    before_it = upto - seen.to(torch.int64)
    last = time.amax(1, keepdim=True) + 1
    spare = torch.cat([time, last], dim=1)
    kth = torch.zeros_like(spare).scatter(1, torch.where(seen, upto - 1, last.expand_as(time)), time)
    before = kth.gather(1, (upto - 1).clamp(min=0))
    after = kth.gather(1, before_it)
    return before, after, upto > 0, before_it < upto[:, -1:], kth[:, :-1]


def time_like(mask: Tensor) -> Tensor:
    """Numbers of the frames in the shape of a mask `(B, T, …)`."""
    return torch.ones_like(mask, dtype=torch.int64).cumsum(1) - 1


def nearest(seen: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The previous and next frame with data, each the other if missing; and the distance between the two."""
    before, after, was, will, _ = neighbours(seen)
    time = time_like(seen)
    count = time.amax(1, keepdim=True) + 1
    between = torch.where(was, torch.where(will, after - before - 1, count - 1 - before), after)
    return torch.where(was, before, after), torch.where(will, after, before), between


def last_seen(values: Tensor, seen: Tensor) -> Tensor:
    """Values `(B, T, …)` of the last frame with something seen `(B, T)`; before that, of the first one."""
    before, _, _ = nearest(seen)
    return pick(values, before, 1)


def lines(x: Tensor, before: Tensor, after: Tensor) -> Tensor:
    """Missing joints, interpolated linearly between the frames in which they were seen."""
    share = (time_like(before) - before).to(x.dtype) / (after - before).clamp(min=1).to(x.dtype)
    low, high = pick(x, before, 1), pick(x, after, 1)
    return low + share[..., None] * (high - low)


def inside(there: Tensor) -> Tensor:
    """Frames between a person's first and last one."""
    _, _, was, will, _ = neighbours(there)
    return was & will


def interpolate_gaps(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    seen = seen_joints(x)
    gaps = inside(seen.any(3))[..., None] & ~seen & seen.any(1, keepdim=True)
    return torch.where(gaps[..., None], lines(x, *nearest(seen)[:2]), x), count


def fill_gaps(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    seen = seen_joints(x)
    there = seen.any(3)
    short = nearest(there)[2] <= count[:, None, None] * LONGEST_ABSENCE
    near = there | (inside(there) & short)
    gaps = near[..., None] & ~seen & seen.any(1, keepdim=True)
    before, after, _ = nearest(seen)
    anchor = anchor_joint(topology)
    centre = torch.zeros_like(x[:, :, :, :1])
    if anchor:
        joint = slice(topology.index(anchor), topology.index(anchor) + 1)
        centre = lines(x[:, :, :, joint], before[..., joint], after[..., joint])
    return torch.where(gaps[..., None], lines(x - centre, before, after) + centre, x), count


def drop_empty(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    alive = present(x).any(2)
    number = alive.sum(1)
    front = pick(x, neighbours(alive)[4], 1)
    return front * (time_like(alive) < number[:, None])[:, :, None, None, None], number


def fill(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    """The authors' filling: frames missing at the start are skipped, at the end the start repeats."""
    there = present(x)
    time, number = time_like(there), there.sum(1, keepdim=True)
    kth = neighbours(there)[4]
    until = torch.where(
        there[:, :1], torch.where(there, time, -torch.ones_like(time)).amax(1, keepdim=True) + 1, number
    )
    turn = torch.remainder(time, until.clamp(min=1))
    index = torch.where(there[:, :1], turn, kth.gather(1, turn))
    some = there.any(1, keepdim=True) & (time < count[:, None, None])
    return pick(x, index, 1) * some[..., None, None], count


def order_persons(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    energy = motion_energy(x)
    place = torch.ones_like(energy).cumsum(1)
    rank = -energy / (1 + energy.amax(1, keepdim=True)) + 1e-7 * place
    return pick(x, rank.sort(dim=1).indices, 2), count


def centre(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    middle = last_seen(x[:, :, 0, topology.index(topology.centre)], present(x)[:, :, 0])
    return (x - middle[:, :, None, None]) * seen_joints(x)[..., None], count


def centre_persons(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    joint = topology.index(MIDDLE)
    return (x - x[:, :, :, joint : joint + 1]) * seen_joints(x)[..., None], count


def mean_line(x: Tensor, topology: Topology, ends: tuple[str, str]) -> Tensor:
    """Mean vector `(B, C)` between two joints of the first person, over the frames in which it is seen."""
    there = present(x)[:, :, 0, None].double()
    line = (
        x[:, :, 0, topology.index(ends[1])].double() - x[:, :, 0, topology.index(ends[0])].double()
    ) * there
    return line.sum(1) / there.sum(1).clamp(min=1)


def length(vector: Tensor) -> Tensor:
    return vector.square().sum(-1, keepdim=True).sqrt()


def rotation_between(source: Tensor, axis: int) -> Tensor:
    """The smallest rotations `(B, 3, 3)` that turn directions `(B, 3)` onto an axis."""
    eye = torch.eye(3, dtype=source.dtype, device=source.device)
    size = length(source)
    start, end = source / size.clamp(min=1e-30), eye[axis].expand_as(source)
    bend = ((start + end).square().sum(-1) / 2)[:, None, None]
    turn = end[:, :, None] * start[:, None, :]
    turn = turn - turn.transpose(1, 2)
    usual = eye + turn + turn @ turn / bend.clamp(min=1e-12)
    # nearly opposite: half a turn about anything perpendicular to it
    least = (start.abs() == start.abs().amin(1, keepdim=True)).to(source.dtype)
    least = least * (least.cumsum(1) == 1)
    side = least - start * (start * least).sum(1, keepdim=True)
    side = side / length(side).clamp(min=1e-30)
    half = 2 * side[:, :, None] * side[:, None, :] - eye
    result = torch.where(bend < 1e-12, half, usual)
    return torch.where((size < 1e-9)[..., None], eye, result)


def turned(x: Tensor, rotation: Tensor) -> Tensor:
    """All joints turned by rotations `(B, 3, 3)`."""
    return x @ rotation.to(x.dtype).transpose(1, 2)[:, None, None]


def axes_of(topology: Topology) -> tuple[tuple[str, str], tuple[str, str]]:
    """The lines `up` and `across` of a body."""
    if topology.up is None or topology.across is None:
        raise InputError(f"'{topology.name}' does not name the axes of a body; leave out --onnx")
    return topology.up, topology.across


def rotate_first(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    first = neighbours(present(x)[:, :, 0])[4][:, :1]
    body = pick(x[:, :, 0], first, 1)[:, 0].double()
    rotation = torch.eye(3, dtype=body.dtype).expand(body.shape[0], 3, 3)
    for ends, axis in zip(axes_of(topology), (2, 0)):
        direction = body[:, topology.index(ends[1])] - body[:, topology.index(ends[0])]
        rotation = rotation_between((rotation @ direction[..., None])[..., 0], axis) @ rotation
    return turned(x, rotation), count


def rotate_mean(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    ends, (upward, side) = ("hip_center", "shoulder_center"), axes_of(topology)
    vertical = mean_line(x, topology, ends if set(ends) <= set(topology.joints) else upward)
    up = vertical / length(vertical).clamp(min=1e-9)
    shoulders = mean_line(x, topology, side)
    across = shoulders - (shoulders * up).sum(1, keepdim=True) * up
    plain = (length(across) < 1e-9) | (length(vertical) < 1e-9)
    across = across / length(across).clamp(min=1e-30)
    forward = torch.stack(
        [
            up[:, 1] * across[:, 2] - up[:, 2] * across[:, 1],
            up[:, 2] * across[:, 0] - up[:, 0] * across[:, 2],
            up[:, 0] * across[:, 1] - up[:, 1] * across[:, 0],
        ],
        dim=1,
    )
    own = torch.stack([across, forward, up], dim=1)
    return turned(x, torch.where(plain[..., None], rotation_between(vertical, 2), own)), count


def yaw(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    flat = torch.tensor([1.0, 0.0, 1.0], dtype=torch.float64)
    return turned(x, rotation_between(mean_line(x, topology, axes_of(topology)[1]) * flat, 0)), count


def yaw_frames(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    start, end = (x[:, :, 0, topology.index(joint)].double() for joint in axes_of(topology)[1])
    line = end - start
    size = (line[..., 0].square() + line[..., 2].square()).sqrt()
    known = present(x)[:, :, 0] & (size > 1e-9)
    both = torch.stack([line[..., 0], line[..., 2]], dim=2) / size.clamp(min=1e-30)[..., None]
    both = last_seen(both, known).to(x.dtype)
    cosine, sine = both[:, :, 0, None, None], both[:, :, 1, None, None]
    some = known.any(1)[:, None, None, None, None]
    result = torch.stack(
        [cosine * x[..., 0] + sine * x[..., 2], x[..., 1], cosine * x[..., 2] - sine * x[..., 0]], dim=-1
    )
    return torch.where(some, result, x), count


def scale(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    """Divide by the mean over the bones of the median length where both ends are seen."""
    child, parent = ([bone[end] for bone in topology.bones] for end in (0, 1))
    person, there = x[:, :, 0].double(), present(x)[:, :, :1]
    seen = (person != 0).any(-1)
    if topology.centre:
        middle = torch.arange(len(topology)) == topology.index(topology.centre)
        seen = seen | (middle & there)
    lengths = (person[:, :, child] - person[:, :, parent]).square().sum(-1).sqrt()
    known = seen[:, :, child] & seen[:, :, parent]
    number = known.sum(1, keepdim=True)
    order = torch.where(known, lengths, torch.full_like(lengths, 1e300)).sort(dim=1).values
    low, high = (order.gather(1, ((number - odd).clamp(min=0)) // 2)[:, 0] for odd in (1, 0))
    some = (number[:, 0] > 0).double()
    size = ((low + high) / 2 * some).sum(1) / some.sum(1).clamp(min=1)
    size = torch.where(size < 1e-9, torch.ones_like(size), size).to(x.dtype)
    return x / size[:, None, None, None, None], count


def picture_up(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    """y upwards: pictures count it downwards, unless the first person's trunk shows that y points up."""
    ends = trunk_ends(topology)
    flipped = x * torch.tensor([1.0, -1.0])
    if ends is None:
        return flipped, count
    line = mean_line(x, topology, ends)
    stands = line[:, 1] > STANDING * length(line)[:, 0]
    return torch.where(stands[:, None, None, None, None], x, flipped), count


def picture(x: Tensor, count: Tensor, topology: Topology) -> tuple[Tensor, Tensor]:
    x, _ = interpolate_gaps(x, count, topology)
    seen = seen_joints(x)
    number = seen.sum((1, 3))  # (B, P)
    anchor = (x * seen[..., None]).sum((1, 3)) / number.clamp(min=1)[..., None].to(x.dtype)
    anchor = anchor[:, None].expand_as(x[:, :, :, 0])
    before, ever = nearest(seen)[0], seen.any(1, keepdim=True)
    for name in reversed([joint for joint in ANCHORS if joint in topology.joints]):
        joint = topology.index(name)
        last = pick(x[:, :, :, joint], before[..., joint], 1)
        anchor = torch.where(ever[..., joint, None], last, anchor)
    moved = (x - anchor[:, :, :, None]) * seen[..., None]
    coordinates = (number * x.shape[-1]).clamp(min=1).double()
    size = 2 * (moved.double().square().sum((1, 3, 4)) / coordinates).sqrt()
    return moved / size.clamp(min=1e-6).to(x.dtype)[:, None, :, None, None], count


GraphStep = Callable[[Tensor, Tensor, Topology], tuple[Tensor, Tensor]]


#: Steps that an ONNX file can hold.
GRAPH_STEPS: dict[str, GraphStep] = {
    "fill": fill,
    "fill-gaps": fill_gaps,
    "interpolate-gaps": interpolate_gaps,
    "drop-empty": drop_empty,
    "order-persons": order_persons,
    "centre": centre,
    "centre-persons": centre_persons,
    "rotate-first": rotate_first,
    "rotate-mean": rotate_mean,
    "yaw": yaw,
    "yaw-frames": yaw_frames,
    "scale": scale,
    "picture-up": picture_up,
    "picture": picture,
}
