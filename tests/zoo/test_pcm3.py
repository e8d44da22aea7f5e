"""PCM3's terms over momentum contrast: the mixed view and its key, distillation to both queries, and what is
refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.compose import compose_moco
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.losses.infonce import info_nce
from halp.methods import ContrastSettings, MocoMethod, StepContext
from halp.skeleton import KINECT_V1
from halp.skeleton.streams import derive
from halp.sphere import unit
from halp.training import load_recipe, pretrain
from halp.zoo.pcm3 import ClipMix, MixSettings, SelfDistillationSettings, self_distillation

TINY = (
    *(
        "epochs=2",
        "batch_size=16",
        "views.frames=12",
        "encoder.hidden=4",
        "encoder.layers=1",
        "contrast.queue=37",
    ),
    *("contrast.dimension=8", "saving.checkpoint_epochs=1", "saving.log_every=1", "split=xsub"),
)
HALP = ("halp.start_epoch=1", "halp.prototypes=4", "halp.count=6", "halp.recent=32")


def model(*terms: str, **changes: object) -> MocoMethod:
    torch.manual_seed(0)
    settings: dict[str, object] = {
        "streams": ("joint", "motion"),
        "encoder": EncoderSettings(hidden=4, layers=1),
        "contrast": ContrastSettings(dimension=8, queue=19, momentum=0.9, temperature=0.2),
        **changes,
    }
    return compose_moco(KINECT_V1, 2, terms=terms, generator=torch.Generator().manual_seed(1), **settings)  # type: ignore[arg-type]


def views() -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(2)
    return {view: torch.randn(8, 16, 2, 20, 3, generator=g) for view in ("query", "key")}


def step(made: MocoMethod, seed: int = 3) -> tuple[Tensor, dict[str, Tensor]]:
    loss, metrics, _ = made(views(), StepContext(0, torch.Generator().manual_seed(seed)))
    return loss, dict(metrics)


@pytest.mark.parametrize(
    "settings", [MixSettings(paste=1.0, squeeze=0.0), MixSettings(paste=0.0, squeeze=0.0)]
)
def test_mix_is_info_nce_of_the_mixed_view_and_the_key_mixed_in_the_same_shares(
    settings: MixSettings,
) -> None:
    made = model("infonce", "mix", **{"mix": settings})
    queues = {stream: made.queue.keys(stream).clone() for stream in made.pairs}
    loss, metrics = step(made)
    mix: ClipMix = made.mixes["mixed"]
    drawn = mix.draw(8, 16, torch.Generator().manual_seed(3))
    expected, mixed_parts = torch.zeros(()), []
    for stream, pair in made.pairs.items():
        clips = derive(views()["query"], stream, KINECT_V1)
        key = pair.key(derive(views()["key"], stream, KINECT_V1))  # type: ignore[operator, union-attr]
        mixed = pair.query(mix.apply(clips, clips[drawn.partner], drawn))  # type: ignore[operator, union-attr]
        target = unit((1 - drawn.share) * key + drawn.share * key[drawn.partner])
        mixed_parts.append(info_nce(mixed, target, queues[stream], 0.2))
        expected = expected + info_nce(pair.query(clips), key, queues[stream], 0.2) + mixed_parts[-1]  # type: ignore[operator, union-attr]
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(metrics["motion/loss_mix"], mixed_parts[1].detach())
    assert set(made.views) == {"query", "key"}, "the mix is made of the query view"


def test_distillation_is_of_the_query_and_where_there_is_one_of_the_mixed_query() -> None:
    plain, both = (
        model(*terms, streams=("joint",)) for terms in (("self-distillation",), ("mix", "self-distillation"))
    )
    queue = both.queue.keys("joint").clone()
    (_, one), (_, two) = step(plain), step(both)
    mix = both.mixes["mixed"]
    drawn = mix.draw(8, 16, torch.Generator().manual_seed(3))
    pair = both.pairs["joint"]
    query, key = pair.query(views()["query"]), pair.key(views()["key"])  # type: ignore[operator, union-attr]
    mixed = pair.query(mix.apply(views()["query"], views()["query"][drawn.partner], drawn))  # type: ignore[operator, union-attr]
    target = unit((1 - drawn.share) * key + drawn.share * key[drawn.partner])
    first = self_distillation(query, key, queue)
    torch.testing.assert_close(one["joint/loss_self_distillation"], first.detach())
    expected = first + self_distillation(mixed, target, queue)
    torch.testing.assert_close(two["joint/loss_self_distillation"], expected.detach())


def test_gradients_reach_query_encoders_only_and_weights_scale() -> None:
    made = model("infonce", "mix", "self-distillation")
    loss, _ = step(made)
    loss.backward()
    for name, parameter in made.named_parameters():
        assert (parameter.grad is not None) == (".query." in name), name
    mute = {"mix": MixSettings(weight=0.0), "self-distillation": SelfDistillationSettings(weight=0.0)}
    silent, _ = step(model("infonce", "mix", "self-distillation", **mute))
    torch.testing.assert_close(silent, step(model("infonce"))[0])


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("mix.weight=-1", "mix.weight = -1.0"),
        ("mix.paste=0.9", "add up to more than 1"),
        ("mix.parts=[2, 6]", "mix: parts = [2, 6] must be a smallest and a largest number, from 1 to 5"),
        ("mix.run=[7]", "mix: run = [7] must be a smallest and a largest number, from 1 to 16"),
        ("contrast.queue=0", "needs 1 keys"),
        ("self-distillation.student_temperature=0", "student_temperature = 0.0 must be above 0"),
        ("self-distillation.tempreature=1", "unknown setting 'self-distillation.tempreature'"),
    ],
)
def test_wrong_settings_get_one_sentence(override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe("small-pcm3", [override])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_mixes_of_methods_without_a_queue_and_queries_of_halp_are_refused() -> None:
    with pytest.raises(InputError, match="'mix' needs 1 keys"):
        load_recipe("small-vicreg", ['terms=["mix"]'])
    with pytest.raises(InputError, match=r"halp\.queries names 'mixed'"):
        load_recipe("small-pcm3-halp", ['halp.queries=["mixed"]'])


def test_halp_forks_from_a_run_without_it(tmp_path: Path, store: Store) -> None:
    warm = pretrain(load_recipe("small-pcm3", TINY), store, tmp_path / "warm", until=1, progress=False)
    both = load_recipe("small-pcm3-halp", (*TINY, *HALP))
    forked = pretrain(both, store, tmp_path / "forked", fork=warm.path, progress=False)
    last = forked.metrics()[-1]
    assert {"joint/loss_mix", "joint/loss_self_distillation", "joint/kept"} <= last.keys()
