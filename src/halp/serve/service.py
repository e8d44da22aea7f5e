"""The computations of the service: models by name, prepared clips, and batches across requests."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from halp._version import __version__
from halp.core.errors import InputError, check_choice
from halp.data.clip import Frames
from halp.data.topology_file import find_topology
from halp.encoders.pretrained import PretrainedEncoder, compacted
from halp.features.embed import embed_table
from halp.features.encode import embed_frames
from halp.features.opening import open_source
from halp.features.ready import Preparation, prepare_source
from halp.serve.metrics import Metrics
from halp.serve.points import points_array
from halp.serve.schema import EmbedAnswer, Health, Hit, ModelFacts, PredictAnswer
from halp.skeleton import Topology
from halp.tasks.card import identity
from halp.tasks.heads import unit
from halp.tasks.model_folder import Model, load_model

BATCH = 32  # clips encoded together
GATHERING = 0.002  # seconds that the first of a batch waits for others
WAITING = 256  # clips that may wait; more are refused
Vectors = npt.NDArray[np.float32]


def name_of(path: str) -> str:
    """The name of a served model: that of its folder, also if the path ends in dots.

    >>> name_of("models/mine/"), name_of("models/mine/../other")
    ('mine', 'other')
    """
    return os.path.basename(os.path.abspath(path))


class Busy(Exception):
    """Raised when more clips are waiting than the service accepts."""


class Batcher:
    """Encodes clips of several requests together, in a separate thread."""

    def __init__(self, encoder: PretrainedEncoder, metrics: Metrics) -> None:
        self.encoder, self.metrics = encoder, metrics
        self._queue: asyncio.Queue[tuple[Frames, asyncio.Future[Vectors]]] = asyncio.Queue()
        self._thread = ThreadPoolExecutor(1, "halp-encode")
        self._task: asyncio.Task[None] | None = None

    async def vector(self, clip: Frames) -> Vectors:
        """The vector of a clip that is ready."""
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        if self._queue.qsize() >= WAITING:
            raise Busy
        future: asyncio.Future[Vectors] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((clip, future))
        self.metrics.waiting += 1
        try:
            return await future
        finally:
            self.metrics.waiting -= 1

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            block = [await self._queue.get()]
            until = loop.time() + GATHERING
            while len(block) < BATCH:
                left = until - loop.time()
                try:
                    block.append(
                        self._queue.get_nowait()
                        if left <= 0
                        else await asyncio.wait_for(self._queue.get(), left)
                    )
                except (asyncio.QueueEmpty, asyncio.TimeoutError):
                    break
            # nobody waits for the others
            block = [(clip, future) for clip, future in block if not future.done()]
            if not block:
                continue
            self.metrics.count("batches")
            self.metrics.count("clips", len(block))
            try:
                vectors = await loop.run_in_executor(self._thread, self._encode, [clip for clip, _ in block])
            except Exception as error:
                for _, future in block:
                    if not future.done():
                        future.set_exception(error)
                continue
            for (_, future), vector in zip(block, vectors):
                if not future.done():
                    future.set_result(vector)

    def _encode(self, clips: Sequence[Frames]) -> Vectors:
        with threadpool_limits(1):
            return embed_frames(self.encoder, clips)

    def close(self) -> None:
        """End the thread."""
        if self._task is not None:
            self._task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)


class Served:
    """A model of the service with its batcher."""

    def __init__(self, name: str, model: Model, metrics: Metrics) -> None:
        self.name, self.model, self.metrics = name, model, metrics
        self.batcher = Batcher(model.encoder, metrics)
        self._ready: dict[str, tuple[Topology, Preparation]] = {}
        self._identity = identity(model.encoder)

    def preparation(self, topology: str | None) -> tuple[Topology, Preparation]:
        """Layout and preparation of points, by the layout's name."""
        name = self.model.encoder.topology.name if topology is None else topology
        if name not in self._ready:
            layout = self.model.encoder.topology if topology is None else find_topology(topology)
            blank = np.zeros((1, 1, len(layout), layout.dimensions), dtype=np.float32)
            self._ready[name] = (
                layout,
                prepare_source(self.model.encoder, open_source(blank, topology=layout)),
            )
        return self._ready[name]

    def prepare(self, points: Any, topology: str | None) -> Frames | None:
        """Points as a clip prepared for the encoder; None if nobody is seen."""
        layout, ready = self.preparation(topology)
        frames = ready.window(ready.recording(points_array(points, layout)))
        return frames if frames.any() else None

    def answer(self, vector: Vectors | None) -> PredictAnswer:
        """The class of a vector, or `nobody`."""
        classifier = self.model.classifier
        if vector is None:
            return PredictAnswer(None, None, None, None)
        found = classifier.predict(vector[None])
        best = classifier.classes[int(found.best[0])]
        rejected = bool(found.rejected[0]) if classifier.can_reject() else None
        return PredictAnswer(
            None if rejected else best, round(float(found.probability[0]), 6), best, rejected
        )

    @cached_property
    def _projection(self) -> Any:
        network = compacted(self.model.encoder).encoder
        return getattr(network, "projection", None)

    def embedded(self, vector: Vectors | None, compact: bool) -> EmbedAnswer:
        """A vector as it is sent."""
        if vector is None:
            vector = np.zeros(self.model.encoder.output_size, dtype=np.float32)
        shown = self.compact(vector) if compact else vector
        return EmbedAnswer(shown.tolist(), self._identity["name"], self._identity["sha256"])

    def compact(self, vector: Vectors) -> Vectors:
        """The compact form of a vector, if the encoder has one."""
        if not self.model.encoder.projection:
            return vector
        import torch

        with torch.inference_mode():
            projected = self._projection(torch.from_numpy(vector[None]))[0].numpy()
        return projected if vector.any() else np.zeros_like(projected)

    @property
    def facts(self) -> ModelFacts:
        """The model's facts at `/health`."""
        encoder, classifier = self.model.encoder, self.model.classifier
        shown = self._identity
        return ModelFacts(
            self.name,
            list(classifier.classes),
            shown["name"],
            shown["sha256"],
            encoder.topology.name,
            self.model.can_reject,
        )


class Service:
    """All models of a service, and the collection that is searched."""

    def __init__(self, models: Sequence[str], index: str | None = None, shared: str | None = None) -> None:
        self.metrics = Metrics(shared)
        self.models: dict[str, Served] = {}
        for path in models:
            name = name_of(path)
            if name in self.models:
                raise InputError(f"two models are called '{name}'; rename the folder of one")
            self.models[name] = Served(name, load_model(path), self.metrics)
        if not self.models:
            raise InputError("a service needs at least one model; make one with `halp classify fit`")
        self.first = next(iter(self.models.values()))
        self._table = None
        if index is not None:
            model = self.first.model
            self._table = embed_table(model.encoder, index, compact=True, reading=None)
            self._unit = unit(np.asarray(self._table.vectors))

    def model(self, name: str | None) -> Served:
        """The model that a request names."""
        return self.first if name is None else self.models[check_choice("model", name, self.models)]

    @property
    def searches(self) -> bool:
        """Whether there is a collection to search."""
        return self._table is not None

    def search(self, vector: Vectors | None, k: int) -> list[Hit]:
        """The nearest rows of the collection."""
        if self._table is None:
            raise InputError("this service has no collection to search; start it with --index")
        if not 1 <= k <= 1000:
            raise InputError(f"k = {k} hits cannot be found; ask for 1 to 1,000")
        if vector is None:
            return []
        similarity = self._unit @ unit(self.first.compact(vector)[None])[0]
        rows = np.argsort(-similarity, kind="stable")[:k]
        table = self._table
        return [
            Hit(
                table.name(row),
                round(float(similarity[row]), 6),
                float(table.starts[row]),
                float(table.stops[row]),
            )
            for row in rows.tolist()
        ]

    def health(self) -> Health:
        """The answer to `/health`."""
        return Health("ok", __version__, [served.facts for served in self.models.values()])

    def close(self) -> None:
        """End all threads."""
        for served in self.models.values():
            served.batcher.close()
