"""A loader for other people's pickles that can build plain data and NumPy arrays, and nothing else.

It is a pickle machine of its own: it reads instruction by instruction, so that no length is believed before the bytes are
there, nothing named in a file is looked up (`halp.clips.pickled`), and all work is paid from a budget that grows with
the size of the file. What comes out is checked once more: plain types, no cycles, bounded depth, and no structure that is
small in the file but endless to walk through because its parts are shared.
"""

from __future__ import annotations

import codecs
import io
import pickle
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

from halp.clips.pickled import CALLABLE, KNOWN, Damaged, Pending, as_key, check_plain
from halp.errors import InputError

_REFUSED = "it is not a pose file but could be an attack, do not open it otherwise"
_BASE_BUDGET = 32 * 2**20
_BUDGET_PER_BYTE = 32
_LONGEST_NUMBER = 128
_NEWEST_PROTOCOL = 5
# What a container or a memo entry takes in memory, with what checking it needs; a file spends one byte on it.
_LIST, _DICT, _SET, _TUPLE, _MEMO = 160, 160, 320, 160, 128


def load_pickle(path: Path, data: bytes | None = None) -> Any:
    """What a pickle file holds: containers, numbers, texts and NumPy arrays; anything else is refused before it is built.

    With `data` it is these bytes, found inside the file, that are read.
    """
    try:
        with open(path, "rb") if data is None else io.BytesIO(data) as file:
            machine = _Machine(file)
            content = machine.run()
            check_plain(content, machine.budget)
            return content
    except OSError as error:
        raise InputError(
            f"'{path}' cannot be read ({error.strerror}); check that it exists and its permissions"
        ) from error
    except pickle.UnpicklingError as error:
        raise InputError(f"'{path}' is refused: {error}; {_REFUSED}") from None
    except (
        ValueError,
        TypeError,
        LookupError,
        AttributeError,
        EOFError,
        MemoryError,
        ArithmeticError,
        struct.error,
    ) as error:
        what = f"{type(error).__name__}: {str(error)[:80]}"
        raise InputError(f"'{path}' is not a whole pickle file ({what}); fetch or write it again") from None


class _Machine:
    """The stack machine that a pickle is a program for, reduced to plain data."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.left = file.seek(0, io.SEEK_END)
        file.seek(0)
        self.budget = _BASE_BUDGET + _BUDGET_PER_BYTE * self.left
        self.spent = 0
        self.stack: list[Any] = []
        self.marks: list[list[Any]] = []
        self.memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Carry out instructions up to the end of the program."""
        while (code := self.take(1)) != b".":
            action = _ACTIONS.get(code)
            if action is None:
                raise Damaged(f"instruction {code!r} has no place in plain data")
            action(self)
        if len(self.stack) != 1 or self.marks:
            raise ValueError("it does not end with one value")
        return _resolved(self.stack[0])

    def take(self, size: int) -> bytes:
        """The next bytes; a size beyond the end of the file is refused before memory is asked for."""
        if size > self.left:
            raise EOFError("the file ends too early")
        data = self.file.read(size)
        if len(data) != size:
            raise EOFError("the file ends too early")
        self.left -= size
        return data

    def line(self) -> bytes:
        data = self.file.readline(self.left)
        if not data.endswith(b"\n"):
            raise EOFError("the file ends too early")
        self.left -= len(data)
        return data[:-1]

    def unsigned(self, size: int) -> int:
        return int.from_bytes(self.take(size), "little")

    def pay(self, cost: int) -> None:
        """Charge for work whose cost is not bounded by the bytes that ask for it."""
        self.spent += cost
        if self.spent > self.budget:
            raise Damaged("it asks for far more memory than its size explains")

    def push(self, value: Any, cost: int = 0) -> None:
        if cost:
            self.pay(cost)
        self.stack.append(value)

    def items(self) -> list[Any]:
        """What was pushed since the last mark."""
        items = [_resolved(item) for item in self.stack]
        self.stack = self.marks.pop()
        return items

    def top(self, kind: type) -> Any:
        found = self.stack[-1]
        if type(found) is not kind:
            raise Damaged(f"a {kind.__name__} is filled that is not there")
        return found

    def find(self, module: object, name: object) -> None:
        known = KNOWN.get((module, name)) if isinstance(module, str) and isinstance(name, str) else None
        if known is None:
            raise Damaged(f"it wants to use '{str(module)[:60]}.{str(name)[:60]}', which is not plain data")
        self.push(known)

    def call(self) -> None:
        arguments, function = self.stack.pop(), self.stack.pop()
        if id(function) not in CALLABLE or type(arguments) is not tuple:
            raise Damaged("it calls something that is not plain data")
        arguments = tuple(map(_resolved, arguments))
        self.pay(sum(16 + 8 * len(value) for value in arguments if isinstance(value, str | list | tuple)))
        self.push(function(*arguments))

    def build(self) -> None:
        state, target = self.stack.pop(), self.stack[-1]
        if not hasattr(type(target), "build"):
            raise Damaged(f"a {type(target).__name__} is given a state")
        if isinstance(state, tuple):
            self.pay(sum(8 + len(part) for part in state if isinstance(part, str)))
        target.build(state)

    def remember(self, place: int) -> None:
        self.pay(_MEMO)
        self.memo[place] = self.stack[-1]

    def recall(self, place: int) -> None:
        self.push(self.memo[place])

    def set_items(self, target: dict[Any, Any], items: list[Any]) -> None:
        if len(items) % 2:
            raise ValueError("a dictionary has a key without a value")
        for key, value in zip(items[::2], items[1::2]):
            target[as_key(key)] = value

    def number(self, size: int) -> int:
        if size > _LONGEST_NUMBER:
            raise Damaged(f"a number has {size} bytes")
        return int.from_bytes(self.take(size), "little", signed=True)

    def text(self, size: int) -> str:
        return self.take(size).decode("utf-8", "surrogatepass")


def _resolved(value: Any) -> Any:
    """An array once it is whole."""
    return value.array if type(value) is Pending and value.array is not None else value


def _integer_line(machine: _Machine) -> None:
    data = machine.line()
    machine.push(data == b"01" if data in (b"00", b"01") else _decimal(data))


def _decimal(data: bytes) -> int:
    if len(data) > _LONGEST_NUMBER:
        raise Damaged(f"a number has {len(data)} digits")
    return int(data.rstrip(b"L"))


def _string_line(machine: _Machine) -> None:
    data = machine.line()
    if len(data) < 2 or data[:1] not in (b"'", b'"') or data[-1:] != data[:1]:
        raise ValueError("a text is not quoted")
    machine.push(codecs.escape_decode(data[1:-1])[0].decode("latin1"))


def _protocol(machine: _Machine) -> None:
    if machine.unsigned(1) > _NEWEST_PROTOCOL:
        raise ValueError("its pickle protocol is newer than 5")


def _mark(machine: _Machine) -> None:
    machine.pay(_LIST)
    machine.marks.append(machine.stack)
    machine.stack = []


def _pop(machine: _Machine) -> None:
    if machine.stack:
        machine.stack.pop()
    else:
        machine.stack = machine.marks.pop()


def _last(machine: _Machine, count: int) -> None:
    if len(machine.stack) < count:
        raise IndexError("a tuple lacks items")
    items = tuple(map(_resolved, machine.stack[len(machine.stack) - count :]))
    del machine.stack[len(machine.stack) - count :]
    machine.push(items, _TUPLE)


def _append(machine: _Machine) -> None:
    value = _resolved(machine.stack.pop())
    machine.top(list).append(value)


def _set_item(machine: _Machine) -> None:
    value, key = _resolved(machine.stack.pop()), machine.stack.pop()
    machine.top(dict)[as_key(key)] = value


def _dictionary(machine: _Machine) -> None:
    items, found = machine.items(), {}  # type: ignore[var-annotated]
    machine.set_items(found, items)
    machine.push(found, _DICT)


def _stack_global(machine: _Machine) -> None:
    name, module = machine.stack.pop(), machine.stack.pop()
    machine.find(module, name)


def _extend(machine: _Machine) -> None:
    items = machine.items()
    machine.top(list).extend(items)


def _update(machine: _Machine) -> None:
    items = machine.items()
    machine.set_items(machine.top(dict), items)


def _add(machine: _Machine) -> None:
    items = machine.items()
    machine.top(set).update(map(as_key, items))


_ACTIONS: dict[bytes, Callable[[_Machine], object]] = {
    b"\x80": _protocol,
    b"\x95": lambda m: m.take(8),
    b"(": _mark,
    b"0": _pop,
    b"1": lambda m: m.items(),
    b"2": lambda m: m.push(m.stack[-1]),
    b"N": lambda m: m.push(None),
    b"\x88": lambda m: m.push(True),
    b"\x89": lambda m: m.push(False),
    b"I": _integer_line,
    b"L": lambda m: m.push(_decimal(m.line())),
    b"J": lambda m: m.push(m.number(4)),
    b"K": lambda m: m.push(m.unsigned(1)),
    b"M": lambda m: m.push(m.unsigned(2)),
    b"\x8a": lambda m: m.push(m.number(m.unsigned(1))),
    b"\x8b": lambda m: m.push(m.number(m.unsigned(4))),
    b"F": lambda m: m.push(float(m.line())),
    b"G": lambda m: m.push(struct.unpack(">d", m.take(8))[0]),
    b"S": _string_line,
    b"T": lambda m: m.push(m.take(m.unsigned(4)).decode("latin1")),
    b"U": lambda m: m.push(m.take(m.unsigned(1)).decode("latin1")),
    b"V": lambda m: m.push(m.line().decode("raw-unicode-escape")),
    b"X": lambda m: m.push(m.text(m.unsigned(4))),
    b"\x8c": lambda m: m.push(m.text(m.unsigned(1))),
    b"\x8d": lambda m: m.push(m.text(m.unsigned(8))),
    b"B": lambda m: m.push(m.take(m.unsigned(4))),
    b"C": lambda m: m.push(m.take(m.unsigned(1))),
    b"\x8e": lambda m: m.push(m.take(m.unsigned(8))),
    b"\x96": lambda m: m.push(bytearray(m.take(m.unsigned(8)))),
    b"]": lambda m: m.push([], _LIST),
    b"}": lambda m: m.push({}, _DICT),
    b")": lambda m: m.push(()),
    b"\x8f": lambda m: m.push(set(), _SET),
    b"l": lambda m: m.push(m.items()),
    b"d": _dictionary,
    b"t": lambda m: m.push(tuple(m.items()), _TUPLE),
    b"\x85": lambda m: _last(m, 1),
    b"\x86": lambda m: _last(m, 2),
    b"\x87": lambda m: _last(m, 3),
    b"a": _append,
    b"e": _extend,
    b"s": _set_item,
    b"u": _update,
    b"\x90": _add,
    b"\x91": lambda m: m.push(frozenset(map(as_key, m.items())), _SET),
    b"p": lambda m: m.remember(_decimal(m.line())),
    b"q": lambda m: m.remember(m.unsigned(1)),
    b"r": lambda m: m.remember(m.unsigned(4)),
    b"\x94": lambda m: m.remember(len(m.memo)),
    b"g": lambda m: m.recall(_decimal(m.line())),
    b"h": lambda m: m.recall(m.unsigned(1)),
    b"j": lambda m: m.recall(m.unsigned(4)),
    b"c": lambda m: m.find(m.line().decode("utf-8"), m.line().decode("utf-8")),
    b"\x93": _stack_global,
    b"R": lambda m: m.call(),
    b"b": lambda m: m.build(),
}
