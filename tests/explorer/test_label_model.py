"""Random acts of two clients against a model that keeps whole states: every revision is one of them, also
after a restart.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from halp.core.errors import InputError
from halp.explorer.labels import LabelBook
from halp.explorer.ledger import Ground

NAMES = ("walk", "run", "=hop", "turn")
SPANS = [(name, float(start), float(start + 2), "") for name in ("a", "-b") for start in range(4)]

State = tuple[dict[tuple[str, float, float], str], dict[str, int]]  # labels by span, places by class
acts = st.lists(
    st.tuples(
        st.sampled_from(
            [
                "label",
                "label",
                "label",
                "clear",
                "rename",
                "remove",
                "move",
                "undo",
                "redo",
                "restart",
                "hand",
            ]
        ),
        st.integers(0, 1),  # who
        st.integers(0, 1_000),
        st.integers(0, 1_000),
        st.booleans(),  # whether the other one's acts were seen
    ),
    max_size=30,
)


def state_of(book: LabelBook) -> State:
    labels = {(event.recording, event.start, event.stop): event.label for _, event in book.now.events}
    return labels, {one.name: one.place for one in book.now.classes}


class Model:
    """States before every act that stands, and after every act that was undone."""

    def __init__(self) -> None:
        self.now: State = ({}, {})
        self.done: list[State] = []
        self.undone: list[State] = []

    def act(self, state: State) -> None:
        self.done.append(self.now)
        self.undone.clear()
        self.now = state

    def turn(self, taken: list[State], left: list[State]) -> None:
        left.append(self.now)
        self.now = taken.pop()


def contradicts(state: State, span: tuple[str, float, float, str], label: str) -> bool:
    return any(
        name == span[0]
        and (start, stop) != span[1:3]
        and other != label
        and start < span[2]
        and span[1] < stop
        for (name, start, stop), other in state[0].items()
    )


def labelled(state: State, span: tuple[str, float, float, str], label: str) -> State:
    labels, places = dict(state[0]), dict(state[1])
    if label not in places:
        places[label] = min(set(range(len(places) + 1)) - set(places.values()))
    return {**labels, span[:3]: label}, places


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(acts)
def test_random_acts_of_two_clients_are_those_of_the_model(
    steps: list[tuple[str, int, int, int, bool]],
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        book, model = LabelBook(Path(folder) / "labels.csv").__enter__(), Model()
        seen, numbers = [0, 0], [0, 0]
        for kind, who, one, two, looked in steps:
            seen[who] = book.revision if looked else seen[who]
            numbers[who] += 1
            ground = Ground(seen[who], f"client {who}", numbers[who])
            legitimate = True
            before, span, label = model.now, SPANS[one % len(SPANS)], NAMES[two % len(NAMES)]
            classes = book.now.classes
            try:
                expected = _step(
                    book, model, kind, ground, span, label, classes[one % len(classes)] if classes else None
                )
            except InputError as error:
                expected, words = before, str(error)
                elsewhere = "another tab" in words or "in the table" in words
                legitimate = kind != "label" or contradicts(before, span, label) or elsewhere
            assert legitimate
            if kind == "restart":
                book.__exit__()
                book, seen = LabelBook(Path(folder) / "labels.csv").__enter__(), [book.revision] * 2
            assert state_of(book) == expected == model.now
        revision, stacks = book.revision, (len(model.done), len(model.undone))
        assert (len(book.now.undo), len(book.now.redo)) == stacks
        book.__exit__()
        with LabelBook(Path(folder) / "labels.csv") as book:
            assert (state_of(book), book.revision) == (model.now, revision)
            for expected in reversed(model.done):
                assert book.undo().changed
                assert state_of(book) == expected


def _step(book: LabelBook, model: Model, kind: str, ground: Ground, span: Any, label: str, own: Any) -> State:
    """Do an act to the book, and where it did not refuse, to the model."""
    labels, places = model.now
    if kind == "label":
        wrong = contradicts(model.now, span, label)
        done = book.label([span], label, ground=ground)
        assert not wrong
        if done.changed:
            model.act(labelled(model.now, span, label))
    elif kind == "clear":
        book.clear([span[:3]], ground=ground)
        model.act(({key: value for key, value in labels.items() if key != span[:3]}, places))
    elif kind == "rename" and own:
        if book.rename(own.id, label, ground=ground).changed:
            renamed = {key: label if value == own.name else value for key, value in labels.items()}
            rest = {name: place for name, place in places.items() if name != own.name}
            model.act((renamed, rest if label in rest else {**rest, label: own.place}))
    elif kind == "remove" and own:
        book.remove(own.id, ground=ground)
        rest = {name: place for name, place in places.items() if name != own.name}
        model.act(({key: value for key, value in labels.items() if value != own.name}, rest))
    elif kind == "move" and book.now.events:
        number, event = book.now.events[ground.number % len(book.now.events)]  # type: ignore[operator]
        book.move(number, event.start + 0.25, event.stop, ground=ground)
        moved = {
            key: value for key, value in labels.items() if key != (event.recording, event.start, event.stop)
        }
        model.act(({**moved, (event.recording, event.start + 0.25, event.stop): event.label}, places))
    elif kind in ("undo", "redo"):
        stack, other = (model.done, model.undone) if kind == "undo" else (model.undone, model.done)
        top = (book.now.undo if kind == "undo" else book.now.redo)[:1]
        turned = (book.undo if kind == "undo" else book.redo)(top[0][0] if top else None, ground=ground)
        assert bool(turned.act) == bool(stack)
        if stack:
            model.turn(stack, other)
    elif kind == "hand" and labels and not _merged(labels):
        lines = book.path.read_text().splitlines()
        book.path.write_text("\n".join(lines[:-1]) + "\n")
        before = set(labels)
        book.look_at_table()
        gone = before - set(state_of(book)[0])
        assert len(gone) == 1
        model.act(({key: value for key, value in labels.items() if key not in gone}, places))
    return model.now


def _merged(labels: dict[tuple[str, float, float], str]) -> bool:
    """Whether the table has fewer rows than there are labels, because those of one class overlap."""
    return any(
        one != two and one[0] == two[0] and first == second and one[1] < two[2] and two[1] < one[2]
        for one, first in labels.items()
        for two, second in labels.items()
    )
