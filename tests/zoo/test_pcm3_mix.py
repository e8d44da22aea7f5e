"""Mixes of two clips: what is replaced, by what, and how large the share is; body parts with and without
names.
"""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from halp.skeleton import KINECT_V2, Topology, get_topology, list_topologies, topology_for
from halp.zoo.pcm3 import ClipMix, mixable_parts

FRAMES = 64
PARTS = mixable_parts(KINECT_V2)


def clips(frames: int = FRAMES) -> tuple[Tensor, Tensor]:
    """Clips, and others whose values are those of their frame, counted from 100."""
    others = 100 + torch.arange(float(frames))[None, :, None, None, None].expand(6, frames, 2, 25, 3)
    return torch.randn(6, frames, 2, 25, 3, generator=torch.Generator().manual_seed(0)), others


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("frames", [64, 50, 16, 3, 1])
def test_pasted_region_is_some_parts_for_a_run_of_frames_and_the_share_is_its_size(
    seed: int, frames: int
) -> None:
    mix = ClipMix(PARTS, paste=1.0, squeeze=0.0)
    drawn = mix.draw(6, frames, generator(seed))
    one, other = clips(frames)
    mixed = mix.apply(one, other, drawn)
    replaced = mixed == other
    assert torch.equal(mixed[~replaced], one[~replaced])
    assert replaced.float().mean().item() == pytest.approx(drawn.share)
    rows = drawn.mask.any(1).nonzero()[:, 0]
    columns = set(drawn.mask.any(0).nonzero()[:, 0].tolist())
    whole = [part for part in PARTS if set(part) <= columns]
    assert sum(map(len, whole)) == len(columns), "parts are replaced as a whole"
    if frames == 64:
        assert len(whole) in (2, 3)
        assert len(rows) in range(28, 45, 4)
        assert int(rows[0]) % 4 == 0
    assert len(rows) or frames == 1
    if len(rows):
        assert rows.tolist() == list(range(int(rows[0]), int(rows[-1]) + 1))


def test_squeezed_region_shows_the_first_frames_of_the_other_clip_at_twice_the_pace() -> None:
    mix = ClipMix(PARTS, paste=0.0, squeeze=1.0, run=(4, 4))
    drawn = mix.draw(6, FRAMES, generator(1))
    mixed = mix.apply(*clips(), drawn)
    rows, columns = (drawn.mask.any(axis).nonzero()[:, 0] for axis in (1, 0))
    assert len(rows) == 16
    shown = mixed[0, rows][:, 0, columns[0], 0]
    torch.testing.assert_close(shown, 100.5 + 2 * torch.arange(16.0))
    assert torch.equal(mixed[:, ~drawn.mask.any(1)], clips()[0][:, ~drawn.mask.any(1)])
    long = ClipMix(PARTS, paste=0.0, squeeze=1.0, run=(11, 11))
    drawn = long.draw(6, FRAMES, generator(1))
    rows = drawn.mask.any(1).nonzero()[:, 0]
    shown = long.apply(*clips(), drawn)[0, rows][:, 0, drawn.mask.any(0).nonzero()[0, 0], 0]
    assert float(shown[-1]) == pytest.approx(163, abs=1), (
        "twice 44 frames are more than the clip has: all of it is shown"
    )


@pytest.mark.parametrize("run", [4, 11])
def test_squeezing_by_the_nearest_frame_shows_whole_frames(run: int) -> None:
    mix = ClipMix(PARTS, paste=0.0, squeeze=1.0, run=(run, run), interpolation="nearest")
    drawn = mix.draw(6, FRAMES, generator(1))
    rows = drawn.mask.any(1).nonzero()[:, 0]
    shown = mix.apply(*clips(), drawn)[0, rows][:, 0, drawn.mask.any(0).nonzero()[0, 0], 0]
    beginning = min(2 * len(rows), FRAMES)
    assert shown.tolist() == [100 + frame * beginning // len(rows) for frame in range(len(rows))]


def test_blended_clips_are_the_weighted_mean_of_both() -> None:
    mix = ClipMix(PARTS, paste=0.0, squeeze=0.0)
    drawn = mix.draw(6, FRAMES, generator(2))
    one, other = clips()
    assert 0 < drawn.share < 1
    torch.testing.assert_close(mix.apply(one, other, drawn), (1 - drawn.share) * one + drawn.share * other)


def test_kinds_come_with_their_probabilities_and_partners_are_other_clips() -> None:
    mix, kinds = ClipMix(PARTS), []
    draws = generator(3)
    for _ in range(600):
        drawn = mix.draw(6, FRAMES, draws)
        kinds.append("squeeze" if drawn.squeezed else "paste" if drawn.mask.any() else "blend")
        shift = (drawn.partner - torch.arange(6)) % 6
        assert int(shift[0]) in range(1, 6)
        assert shift.unique().numel() == 1
    for kind, probability in (("paste", 0.5), ("squeeze", 0.25), ("blend", 0.25)):
        assert kinds.count(kind) / 600 == pytest.approx(probability, abs=0.06)
    assert mix.draw(1, FRAMES, draws).partner.tolist() == [0], "a batch of one clip"


def test_probabilities_change_no_other_draw() -> None:
    paste, blend = (ClipMix(PARTS, paste=p, squeeze=0.0) for p in (1.0, 0.0))
    one, two = generator(5), generator(5)
    assert torch.equal(paste.draw(6, FRAMES, one).partner, blend.draw(6, FRAMES, two).partner)
    assert torch.equal(one.get_state(), two.get_state())


@pytest.mark.parametrize("name", list_topologies())
def test_parts_hold_every_joint_once(name: str) -> None:
    topology = get_topology(name)
    parts = mixable_parts(topology)
    assert len(parts) == 5
    assert sorted(joint for part in parts for joint in part) == list(range(len(topology)))


def test_parts_are_trunk_and_limbs_by_name_or_else_five_equal_runs_along_the_tree() -> None:
    assert sorted(map(len, PARTS)) == [4, 4, 5, 6, 6]
    # a root with two chains that are numbered by turns: 0 - 1 - 3 - 5 - 7 - 9 and 0 - 2 - 4 - 6 - 8
    names = [f"marker{number}" for number in range(10)]
    tree = Topology("two-chains", tuple(names), (0, 0, 0, 1, 2, 3, 4, 5, 6, 7))
    assert mixable_parts(tree) == [[0, 1], [3, 5], [7, 9], [2, 4], [6, 8]]
    assert mixable_parts(topology_for(["tail", "wing", "beak"], 3)) == [[0], [1], [2]]
    mix = ClipMix(mixable_parts(topology_for(["tail", "wing", "beak"], 3)))
    assert mix.draw(4, 16, generator(0)).mask.shape == (16, 3)
