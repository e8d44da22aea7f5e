"""Methods over several streams: aligned queues, composition by name, exact resume, and wrong combinations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import halp
from benchmarks.compose import compose_moco
from halp.core.errors import InputError
from halp.data.store import Store
from halp.encoders import EncoderSettings
from halp.methods import (
    TERMS,
    CmdSettings,
    ContrastSettings,
    CrossClrSettings,
    HalpSettings,
    MocoMethod,
    StepContext,
    register_term,
)
from halp.methods.halp import guided_prototypes
from halp.skeleton import KINECT_V1
from halp.training import Recipe, load_recipe, pretrain
from halp.training.checkpoint import list_checkpoints, newest_checkpoint
from halp.zoo.mochi import MochiSettings

THREE = ("joint", "motion", "bone")
METHODS = {
    "cmd": ("small-cmd",),
    "halp-cmd": ("small-halp-cmd",),
    "guided": ("small-halp-cmd", "halp.prototype_source=cross_stream"),
    "crossclr-b": ("small-crossclr-b", "crossclr.start_epoch=1"),
    "isc": ("small-isc", "encoders.stgcn.output=16", "encoders.stgcn.stages=2"),
    "halp-isc": ("small-isc", "encoders.stgcn.output=16", "encoders.stgcn.stages=1", 'terms=["isc", "halp"]'),
    "mochi": ("small-mochi", "mochi.hardest=8", "mochi.start_epoch=1"),
    "mochi-halp": ("small-mochi-halp", "mochi.hardest=8", "mochi.start_epoch=1", 'streams=["joint", "bone"]'),
    "queue-free": ("small-queue-free-halp", "contrast.queue=0"),
    "queue-free-no-momentum": ("small-queue-free-no-momentum-halp", "contrast.queue=0"),
    "skeletonbt": ("small-skeletonbt", "barlow.width=16", 'streams=["joint", "motion"]'),
    "skeletonbt-halp": ("small-skeletonbt-halp", "barlow.width=16"),
    "pcm3": ("small-pcm3", 'streams=["joint", "motion"]'),
    "pcm3-halp": ("small-pcm3-halp",),
    "tune": ("small-tune", "tune.width=8", "tune.memory=37", 'streams=["joint", "motion"]'),
    "vicreg": ("small-vicreg", "vicreg.width=16", 'streams=["joint", "bone"]'),
    "vicreg-halp": ("small-vicreg-halp", "vicreg.width=16"),
    "ascal": ("small-ascal", "encoder.hidden=8", "contrast.dimension=8"),
    "hiclr": (
        "small-hiclr",
        "encoder.output=8",
        "encoder.stages=1",
        "views.frames=6",
        "hiclr.mining_epoch=1",
    ),
    "halp-crossclr-b": ("small-crossclr-b", "crossclr.start_epoch=1", 'terms=["crossclr", "halp"]'),
}


def recipe(method: str, tiny: tuple[str, ...], *more: str) -> Recipe:
    name, *changes = METHODS[method]
    known = load_recipe(name, changes).flat()
    # a queue that no batch of 16 divides, so that writes wrap around in the middle of a batch
    settings = (*tiny, "contrast.queue=37")
    fitting = [setting for setting in settings if setting.partition("=")[0] in known]
    return load_recipe(name, (*fitting, *changes, *more))


def model(streams: tuple[str, ...] = THREE, **changes: object) -> MocoMethod:
    torch.manual_seed(0)
    settings: dict[str, object] = {
        "encoder": EncoderSettings(hidden=4, layers=1),
        "encoders": {"stgcn": EncoderSettings("stgcn", output=8, stages=1)},
        "contrast": ContrastSettings(dimension=8, queue=19, momentum=0.9),
        "halp": HalpSettings(start_epoch=0, prototypes=3, count=5, recent=16, refresh=2),
        "crossclr": CrossClrSettings(start_epoch=0),
        "mochi": MochiSettings(hardest=5, pairs=6, with_query=2, start_epoch=0),
        **changes,
    }
    return compose_moco(KINECT_V1, 1, streams=streams, **settings)  # type: ignore[arg-type]


def views(seed: int = 0) -> dict[str, Tensor]:
    g = torch.Generator().manual_seed(seed)
    return {view: torch.randn(8, 6, 1, 20, 3, generator=g) for view in ("query", "key")}


def moment(epoch: int = 0, seed: int = 0) -> StepContext:
    return StepContext(epoch, torch.Generator().manual_seed(seed))


def final_files(run: Path) -> dict[str, bytes]:
    newest = list_checkpoints(run / "checkpoints")[-1]
    names = ("model.safetensors", "optimiser.safetensors", "state.json")
    return {name: (newest / name).read_bytes() for name in names} | {
        "metrics": (run / "metrics.jsonl").read_bytes()
    }


@pytest.mark.parametrize("method", ["halp-cmd", "skeletonbt-halp"])
@pytest.mark.slow
def test_methods_with_and_without_a_queue_resume_exactly(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], method: str
) -> None:
    chosen = recipe(method, tiny)
    whole = pretrain(chosen, store, tmp_path / "whole", progress=False)
    pretrain(chosen, store, tmp_path / "parts", until=2, progress=False)
    parts = pretrain(chosen, store, tmp_path / "parts", resume=True, progress=False)
    assert final_files(whole.path) == final_files(parts.path)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.slow
def test_every_method_trains_reports_its_losses_and_leaves_encoders(
    tmp_path: Path, store: Store, tiny: tuple[str, ...], method: str
) -> None:
    chosen = recipe(method, tiny)
    whole = pretrain(chosen, store, tmp_path / "whole", until=2, progress=False)
    last = whole.metrics()[-1]
    for stream in chosen.streams:
        assert ("halp" in chosen.terms) == (f"{stream}/kept" in last)
        assert ("cmd" in chosen.terms) == (f"{stream}/loss_distillation" in last)
        assert ("crossclr" in chosen.terms) == (f"{stream}/loss_mining" in last)
        assert ("mochi" in chosen.terms) == (f"{stream}/loss_mochi" in last)
        assert ("mix" in chosen.terms) == (f"{stream}/loss_mix" in last)
        assert (chosen.method == "barlow") == (f"{stream}/loss_barlow" in last)
        assert (chosen.method == "vicreg") == (f"{stream}/loss_vicreg" in last)
        assert halp.load_encoder(whole.path, stream)(torch.zeros(2, 12, 1, 25, 3)).isfinite().all()


def test_halp_forked_from_a_cmd_warm_up_equals_one_run_of_both(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    warm = pretrain(
        recipe("halp-cmd", tiny, 'terms=["infonce", "cmd"]'), store, tmp_path / "w", until=1, progress=False
    )
    forked = pretrain(recipe("halp-cmd", tiny), store, tmp_path / "forked", fork=warm.path, progress=False)
    straight = pretrain(recipe("halp-cmd", tiny), store, tmp_path / "straight", progress=False)
    assert final_files(forked.path)["model.safetensors"] == final_files(straight.path)["model.safetensors"]


def test_streams_side_by_side_give_the_loss_and_gradients_of_streams_in_turn() -> None:
    threads, found = torch.get_num_threads(), []
    for number in (4, 1):  # with cores to spare the GRUs of all streams go through time at once
        try:
            torch.set_num_threads(number)
            made = model(terms=("infonce", "cmd"))
            loss, *_ = made(views(0), moment(seed=0))
            loss.backward()
        finally:
            torch.set_num_threads(threads)
        found.append([loss.detach(), *(p.grad for p in made.parameters() if p.grad is not None)])
    assert len(found[0]) == len(found[1]) > 10
    for together, alone in zip(*found):
        torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-4)


def test_queues_stay_aligned_through_wrap_around_and_resume() -> None:
    made = model(terms=("infonce", "cmd"))
    seen: dict[str, list[Tensor]] = {stream: [] for stream in THREE}

    def record(model: MocoMethod) -> None:
        for stream in THREE:
            key: nn.Module = model.pairs[stream].key  # type: ignore[assignment]
            key.register_forward_hook(lambda *call, stream=stream: seen[stream].append(call[2].clone()))

    def which(queue: Tensor, stream: str) -> list[int]:
        """For every row the position of its key among all that the stream ever made."""
        same = (queue[:, None] == torch.cat(seen[stream])[None]).all(2)
        assert same.sum(1).eq(1).all()
        return same.float().argmax(1).tolist()

    record(made)
    for step in range(3):
        made(views(step), moment(seed=step))
    resumed = model(terms=("infonce", "cmd"))
    resumed.load_state_dict(made.state_dict())
    record(resumed)
    for step in range(3, 7):
        resumed(views(step), moment(seed=step))
        rows = [which(resumed.queue.keys(stream), stream) for stream in THREE]
        assert rows[0] == rows[1] == rows[2]
        written = 8 * (step + 1)
        assert sorted(rows[0]) == list(range(written - 19, written))


@pytest.mark.parametrize(
    ("streams", "terms"),
    [
        (THREE, ("infonce", "cmd")),
        (THREE, ("infonce", "cmd", "halp")),
        (THREE, ("crossclr",)),
        (THREE, ("crossclr", "cmd", "halp")),
        (THREE, ("mochi", "cmd", "halp")),
        (("joint", "joint@stgcn"), ("infonce", "mix", "self-distillation", "halp")),
        (("joint", "joint@stgcn"), ("isc",)),
        (("joint", "joint@stgcn", "bone@stgcn"), ("infonce", "isc", "cmd", "halp")),
    ],
)
def test_any_terms_compose_and_train_all_query_branches_only(
    streams: tuple[str, ...], terms: tuple[str, ...]
) -> None:
    made = model(streams, terms=terms)
    for step in range(4):
        loss, metrics, _ = made(views(step), moment(seed=step))
    loss.backward()
    assert torch.isfinite(loss)
    for name, parameter in made.named_parameters():
        assert (parameter.grad is not None) == (".query." in name), name
    assert {name.split("/")[0] for name in metrics if "/" in name} == set(streams)


def test_sum_of_terms_is_the_sum_of_each_alone() -> None:
    def value(*terms: str) -> Tensor:
        made = model(terms=terms)
        for step in range(4):
            loss, *_ = made(views(step), moment(seed=step))
        return loss

    assert torch.allclose(value("infonce", "cmd"), value("infonce") + value("cmd"), atol=1e-5)


def test_mochi_is_info_nce_before_its_epoch_with_a_new_queue_and_without_mixes() -> None:
    def values(steps: int, *terms: str, **changes: object) -> list[Tensor]:
        made = model(terms=terms, **changes)
        return [made(views(step), moment(epoch=3, seed=step)).loss.detach() for step in range(steps)]

    plain = values(5, "infonce")
    late, none = (
        MochiSettings(hardest=5, start_epoch=4),
        MochiSettings(5, pairs=0, with_query=0, start_epoch=0),
    )
    for settings in (late, none):
        assert all(map(torch.equal, plain, values(5, "mochi", mochi=settings)))
    mixed = values(5, "mochi")  # the queue of 19 is full after three batches of 8
    assert all(map(torch.equal, plain[:3], mixed))
    assert all(float(one) < float(two) for one, two in zip(plain[3:], mixed[3:])), (
        "further negatives only raise the loss"
    )


def test_all_key_encoders_follow_while_positives_are_mined() -> None:
    made = model(terms=("crossclr",))
    for step in range(3):
        made(views(step), moment())
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if ".query." in name:
                parameter.add_(0.1)
    before = {name: value.clone() for name, value in made.named_parameters() if ".key." in name}
    assert {name.split(".")[1] for name in before} == set(THREE)
    _, metrics, _ = made(views(9), moment())
    assert "bone/loss_mining" in metrics
    after = dict(made.named_parameters())
    assert all(not torch.equal(after[name], value) for name, value in before.items())


def test_guided_positives_use_the_clusters_of_the_other_streams_by_turns() -> None:
    made = model(
        terms=("infonce", "halp"),
        halp=HalpSettings(0, 0, 3, 5, recent=16, refresh=2, prototype_source="cross_stream"),
    )
    for step in range(3):  # the queue of 19 is full, and prototypes are due with the next batch
        made(views(step), moment(seed=step))
    term = made.terms["halp"].streams["joint"]  # type: ignore[index, union-attr]
    assert len(term.centres) == 0
    made.terms["halp"].settings = HalpSettings(
        1.0, 0, 3, 5, recent=16, refresh=2, prototype_source="cross_stream"
    )
    for guide in ("motion", "bone"):
        recent = {stream: made.queue.recent(stream, 16) for stream in THREE}
        made(views(7), moment(seed=11))
        expected = guided_prototypes(recent["joint"], recent[guide], 3, torch.Generator().manual_seed(11))
        assert torch.equal(term.centres, expected), guide
        made(views(8), moment(seed=12))
        assert torch.equal(term.centres, expected), "prototypes last until the next refresh"


def test_representations_of_one_stream_have_their_own_encoders() -> None:
    made = model(("joint", "joint@stgcn"), terms=("isc",))
    kinds = [type(pair.query.encoder).__name__ for pair in made.pairs.values()]  # type: ignore[union-attr]
    assert kinds == ["GRUEncoder", "STGCNEncoder"]


def test_a_term_of_ones_own_is_a_name_in_a_recipe() -> None:
    @dataclass(frozen=True)
    class QuietSettings:
        level: float = 1.0

    class Quiet(nn.Module):
        def __init__(self, settings: QuietSettings, streams: object, temperature: float) -> None:
            super().__init__()
            self.level = settings.level

        def forward(
            self, streams: Mapping[str, object], queue: object, context: object
        ) -> tuple[Tensor, dict[str, Tensor]]:
            return torch.zeros(()), {"quiet": torch.tensor(self.level)}

    register_term("quiet", QuietSettings)(Quiet)
    try:
        chosen = load_recipe("small", ['terms=["infonce", "quiet"]', "quiet.level=0.5"])
        assert chosen.quiet == QuietSettings(0.5)
        assert Recipe().terms == ("infonce", "halp")
        _, metrics, _ = model(terms=("infonce", "quiet"), quiet=chosen.quiet)(views(), moment())
        assert float(metrics["quiet"]) == 0.5
        with pytest.raises(InputError, match=r"section \[quiet\] would be ignored"):
            load_recipe("small", ["quiet.level=0.5"])
        with pytest.raises(InputError, match=r"did you mean 'quiet\.level'"):
            load_recipe("small", ['terms=["infonce", "quiet"]', "quiet.levle=0.5"])
    finally:
        TERMS.remove("quiet")


@pytest.mark.parametrize(
    ("name", "override", "words"),
    [
        ("small-cmd", 'streams=["joint"]', "'cmd' distils between streams"),
        ("small-cmd", "cmd.share=1.5", "share = 1.5 must be above 0 and at most 1"),
        ("small-cmd", "cmd.share=0", "share = 0.0"),
        ("small-cmd", "contrast.queue=0", "'cmd' needs 2 keys"),
        ("small-cmd", "cmd.teacher_temperature=0", "teacher_temperature = 0.0"),
        ("small-cmd", "cmd.weights=1", "unknown setting 'cmd.weights': did you mean 'cmd.weight'"),
        ("small-crossclr-b", 'streams=["joint"]', "'crossclr' takes positives from another stream"),
        (
            "small-crossclr-b",
            "crossclr.top=513",
            "'crossclr' needs 513 keys (crossclr.top = 513) and contrast.queue = 512",
        ),
        ("small-crossclr-b", "crossclr.top=0", "top = 0"),
        ("small-crossclr-b", 'terms=["infonce", "crossclr"]', "leave 'infonce' out"),
        (
            "small-mochi",
            "mochi.hardest=513",
            "'mochi' needs 513 keys (mochi.hardest = 513) and contrast.queue = 512",
        ),
        ("small-mochi", "mochi.hardest=0", "hardest = 0 must be at least 1"),
        ("small-mochi", "mochi.query_share=1", "query_share = 1.0 must be above 0 and below 1"),
        ("small-mochi", 'terms=["infonce", "mochi"]', "leave 'infonce' out"),
        ("ntu60-crossclr-b", 'terms=["crossclr", "mochi"]', "'mochi' replaces InfoNCE; leave 'crossclr' out"),
        ("small-ascal", "contrast.head=mpl", "unknown contrast.head 'mpl': did you mean 'mlp'"),
        ("small-isc", 'streams=["joint@stgcn"]', "'isc' contrasts representations"),
        ("small-isc", 'streams=["joint", "joint@agcn"]', "add a section [encoders.agcn]"),
        ("small-isc", 'streams=["joint", "joint@"]', "must be written stream@encoder"),
        ("small-isc", 'streams=["joint", "joints@stgcn"]', "unknown stream 'joints': did you mean 'joint'"),
        ("small-isc", "encoders.stgcn.name=stgn", "unknown encoder 'stgn': did you mean 'stgcn'"),
        ("small-isc", "encoders.stgcn=3", "'encoders.stgcn' is a section"),
        ("small-isc", "encoders=3", "'encoders' holds sections"),
        ("small-isc", "encoders.stgcn.outputs=3", "did you mean 'encoders.stgcn.output'"),
        (
            "small-halp-cmd",
            "halp.prototype_source=cross_streamed",
            "unknown halp.prototype_source 'cross_streamed': did you mean 'cross_stream'",
        ),
        ("small", "halp.prototype_source=cross_stream", "takes the clusters of another stream"),
        (
            "small-halp-cmd",
            'halp={prototype_source="cross_stream", source="batch"}',
            "prototype_source = 'cross_stream' needs source = 'queue'",
        ),
    ],
)
def test_wrong_combinations_get_one_sentence(name: str, override: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_recipe(name, [override])
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_built_without_a_recipe_refuses_the_same() -> None:
    with pytest.raises(InputError, match="'cmd' distils between streams"):
        model(("joint",), terms=("infonce", "cmd"))
    with pytest.raises(InputError, match="'crossclr' needs 20 keys"):
        model(terms=("crossclr",), crossclr=CrossClrSettings(top=20))


def test_share_of_the_queue_is_cmds_8192_of_16384_and_never_less_than_two() -> None:
    assert CmdSettings().count(16384) == 8192
    assert CmdSettings(share=0.01).count(10) == 2


@pytest.mark.parametrize(
    ("data", "epochs", "milestone", "prototypes", "weight"),
    [("ntu60", 450, 350, 20, 1.0), ("ntu120", 450, 350, 40, 2.0), ("pku2", 1000, 800, 20, 1.0)],
)
def test_published_recipes_have_the_papers_settings(
    data: str, epochs: int, milestone: int, prototypes: int, weight: float
) -> None:
    plain = load_recipe(f"{data}-moco")
    cmd, both, mining = (load_recipe(f"{data}-{name}") for name in ("cmd", "halp-cmd", "crossclr-b"))
    for chosen in (cmd, both, mining):
        assert (chosen.epochs, chosen.streams, chosen.optimiser.milestones) == (epochs, THREE, (milestone,))
        assert (chosen.views, chosen.encoder, chosen.contrast) == (plain.views, plain.encoder, plain.contrast)
        assert (chosen.optimiser, chosen.batch_size) == (plain.optimiser, 64)
    assert (cmd.terms, both.terms, mining.terms) == (
        ("infonce", "cmd"),
        ("infonce", "cmd", "halp"),
        ("crossclr",),
    )
    assert cmd.cmd == both.cmd == CmdSettings(1.0, 0.5, 0.05, 0.1)
    assert both.halp == load_recipe(f"{data}-halp").halp
    assert (both.halp.prototypes, both.halp.weight, both.halp.prototype_source) == (
        prototypes,
        weight,
        "self",
    )
    assert mining.crossclr == CrossClrSettings(150, 1)
    isc = load_recipe(f"{data}-isc")
    assert (isc.streams, isc.terms, isc.encoder.input_norm) == (("joint", "joint@stgcn"), ("isc",), False)
    assert (isc.encoders["stgcn"].name, isc.encoders["stgcn"].output) == ("stgcn", 256)


def test_checkpoint_of_a_method_holds_queue_and_prototypes_of_every_stream(
    tmp_path: Path, store: Store, tiny: tuple[str, ...]
) -> None:
    run = pretrain(recipe("halp-cmd", tiny, "epochs=2"), store, tmp_path / "run", progress=False)
    saved = newest_checkpoint(run.checkpoints).model
    for stream in THREE:
        assert saved[f"queue.keys_{stream}"].shape == (37, 16)
        assert saved[f"terms.halp.streams.{stream}.centres"].shape == (4, 16)
    assert saved["queue.pointer"].ndim == 0, "one pointer for all"
