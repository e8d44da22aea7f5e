"""From arrays of joints to an encoder and its nearest neighbours, in one script."""

import tempfile
from pathlib import Path

import halp
from halp.data.arrays import store_from_arrays
from halp.data.synthetic import synthetic_clips
from halp.evaluation.protocols.knn import neighbours

folder = Path(tempfile.mkdtemp())

# any list of arrays (frames, persons, joints, coordinates) will do; invented people stand in for yours
recordings = list(synthetic_clips(240, subjects=6))
store = store_from_arrays(
    folder / "store",
    [clip.frames for clip in recordings],
    topology="kinect-v2",
    names=[clip.name for clip in recordings],
    normalisation=("centre", "rotate-first"),
)

recipe = halp.load_recipe(
    "small", ["split=all", "epochs=10", "contrast.queue=128", "halp.recent=128", "halp.start_epoch=5"]
)
run = halp.pretrain(recipe, store, folder / "run")

encoder = halp.load_encoder(run.path)
vectors = halp.embed(encoder, store)
found, similarity = neighbours(vectors, vectors[:5], k=2)
for clip in range(5):
    print(
        f"{store.names[clip]} is most like {store.names[found[clip, 1]]} (cosine {similarity[clip, 1]:.2f})"
    )
