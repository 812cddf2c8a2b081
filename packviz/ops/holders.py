"""Finds every place that holds a function, names it as a reader would look for it, and can put another function there.

`from module import function` copies a reference, and so do attributes, default arguments, closures and containers. The
garbage collector knows all of them. A place is named by the module, class, function or object that leads to it.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import weakref
from collections.abc import Callable, Iterable, Iterator
from types import CellType, FrameType, FunctionType, GeneratorType, ModuleType
from typing import Any

_LEVELS = 8  # how far a place is followed to what leads to it, such as a module
_WRAPPERS = (staticmethod, classmethod)
_CACHED = type(functools.lru_cache(int))


class Place:
    """A place that holds a function.

    Attributes:
        name: where it is, such as `train.Tagger.pack` or `train.forward's default argument 'pack'`.
    """

    def __init__(
        self,
        name: str,
        owner: Any = None,
        get: Callable[[Any], Any] = lambda owner: None,
        put: Callable[[Any, Any], None] | None = None,
        wrap: Callable[[Any], Any] = lambda function: function,
    ) -> None:
        """Keeps the owner alive only if it takes no weak reference.

        Args:
            name: what follows the name of the owner.
            owner: the object that holds the function, or the part of it that can be changed.
            get: returns what the owner holds there.
            put: puts something else there; `None` if that is impossible.
            wrap: makes what the owner holds of a function, such as a `staticmethod`.
        """
        self.name, self._get, self._put, self._wrap = name, get, put, wrap
        try:
            self._owner: Callable[[], Any] = weakref.ref(owner)
        except TypeError:
            self._owner = lambda: owner

    def replace(self, function: FunctionType) -> Callable[[], object] | None:
        """Puts another function there. Returns what undoes it, or `None` if nothing can be put there."""
        before, after = self._held(), self._wrap(function)
        if not self._try(after):
            return None
        return lambda: before is not None and self._held() is after and self._try(before)

    def _held(self) -> Any:
        try:
            return self._get(self._owner())
        except _REFUSED:
            return None

    def _try(self, value: Any) -> bool:
        if self._put is None:
            return False
        try:
            self._put(self._owner(), value)
        except _REFUSED:
            return False
        return self._held() is value


_REFUSED = (AttributeError, IndexError, TypeError, ValueError)  # it cannot be set, or is not there any more


@contextlib.contextmanager
def thawed() -> Iterator[None]:
    """Lets what `gc.freeze()` has frozen be found. Afterwards it is frozen again, with all else that is in use then."""
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()


def find(functions: Iterable[FunctionType], but: tuple[str, ...], own: str) -> list[tuple[FunctionType, Place]]:
    """Returns each function with each place that holds it. Local variables of running functions are not found.

    Args:
        functions: the functions to look for.
        but: packages whose modules, classes and functions are left out.
        own: the one of them whose objects are left out, too, whoever holds them.
    """
    gc.collect()  # what nobody can reach any more needs no name
    functions = list(functions)
    search = _Search(functions, but, own)
    return [(function, place) for function in functions for place in search.places(function)]


class _Search:
    def __init__(self, functions: list[FunctionType], but: tuple[str, ...], own: str) -> None:
        self._but, self._own = but, own
        self._modules = {id(_names(one)) for one in list(sys.modules.values()) if isinstance(one, ModuleType)}
        self._above: dict[int, list[Any]] = {}
        self._known: dict[int, list[str]] = {}
        frontier: list[Any] = functions
        for _ in range(_LEVELS):
            looked_for = {id(one) for one in frontier}
            self._above |= {one: [] for one in looked_for}
            ours = {id(one) for one in (functions, frontier, *self._above.values())}
            fresh = []
            for one in gc.get_referrers(*frontier) if frontier else ():
                if isinstance(one, (FrameType, GeneratorType)) or id(one) in ours:
                    continue
                for held in {id(each) for each in gc.get_referents(one)} & looked_for:
                    self._above[held].append(one)
                if id(one) not in self._above and self._root(one) is None:
                    fresh.append(one)
            frontier = fresh

    def places(self, value: Any) -> Iterator[Place]:
        for holder in self._holders(value):
            for place in _places(holder, value):
                if names := self._called(holder):
                    place.name = min(names, key=len) + place.name
                    yield place

    def _holders(self, value: Any) -> Iterator[Any]:
        """What holds a value. If a dict, tuple, cell or wrapper is a part of something, that is the whole."""
        seen: set[int] = set()
        for one in self._above.get(id(value), ()):
            wholes = [one]
            if isinstance(one, (dict, tuple, CellType, *_WRAPPERS)) and self._root(one) is None:
                above = self._above.get(id(one), [])
                above = [*above, *(each for two in above for each in self._above.get(id(two), ()))]
                wholes = [two for two in above if _is_part(one, two)] or [one]
            for whole in wholes:
                if id(whole) not in seen:
                    seen.add(id(whole))
                    yield whole

    def _called(self, one: Any) -> list[str]:
        """The names of an object: its own, or those of the places that hold it. None if all of them are left out."""
        root = self._root(one)
        if root is not None:
            return [root] if root else []
        if id(one) not in self._known:
            self._known[id(one)] = []  # what leads back to itself
            found = [place.name for place in self.places(one)]
            if not self._above.get(id(one)) and not isinstance(one, (dict, list, tuple, set, CellType)):
                found = [_object(one)]  # only local variables hold it
            self._known[id(one)] = list(dict.fromkeys(found))
        return self._known[id(one)]

    def _root(self, one: Any) -> str | None:
        """The name that needs nothing above it; empty if it is left out; `None` if there is no such name."""
        if isinstance(one, dict):
            if id(one) not in self._modules and not ("__name__" in one and {"__builtins__", "__spec__"} & one.keys()):
                return None
            module = name = str(one.get("__name__", "<namespace>"))
        elif isinstance(one, type):
            module, name = one.__module__, f"{one.__module__}.{one.__qualname__}"
        elif isinstance(one, FunctionType):  # functools.wraps changes its __module__ and __qualname__
            module = str(one.__globals__.get("__name__", "<namespace>"))
            name = f"{module}.{one.__code__.co_qualname}"
        else:
            module, name = type(one).__module__, _object(one)
        package = str(module).partition(".")[0]  # a class may have anything under __module__
        if package == self._own or (package in self._but and isinstance(one, (dict, type))):
            return ""
        if package in self._but or (package in sys.stdlib_module_names and not isinstance(one, (dict, type))):
            return None  # a function or an object that is made for whoever holds it
        return name


def _places(one: Any, value: Any) -> list[Place]:
    """How an object holds a value. Nothing of the reader's code runs: no property, no `__setattr__`."""
    if isinstance(one, FunctionType):
        found = _defaults(one, value) + _closure(one, value) + _entries(one, vars, value, ".{}")
        return found + _entries(one, lambda f: f.__kwdefaults__ or {}, value, "'s default argument {!r}")
    if isinstance(one, type):
        return [_attribute(one, key, each) for key, each in list(vars(one).items()) if _unwrapped(each) is value]
    if isinstance(one, dict):
        found = _entries(one, lambda d: d, value, ".{}" if "__name__" in one else "[{!r}]")
        is_key = any(key is value for key in list(dict.keys(one)))
        return found or [Place(" (as a key)" if is_key else f" (in a {type(one).__name__})")]
    if isinstance(one, list):
        return [_item(one, i) for i, each in enumerate(one) if each is value]
    if isinstance(one, tuple):
        return [Place(f"[{i}]") for i, each in enumerate(one) if each is value]
    hidden = isinstance(one, (*_WRAPPERS, _CACHED))  # what it says to hold cannot be set, or is not used
    found = [] if hidden else _entries(one, _names, value, ".{}")
    return found or [Place(f" (in a {type(one).__name__})")]


def _is_part(part: Any, whole: Any) -> bool:
    """Whether a dict, tuple, cell or wrapper is how the whole holds its attributes, arguments or variables."""
    if isinstance(whole, type):  # it has one dict, and gives away only a view of it
        names = vars(whole)
        if isinstance(part, _WRAPPERS):
            return any(part is each for each in names.values())
        return isinstance(part, dict) and part.keys() == names.keys() and all(part is not e for e in names.values())
    if isinstance(whole, FunctionType):
        own = (whole.__defaults__, whole.__kwdefaults__, vars(whole), *(whole.__closure__ or ()))
    elif isinstance(whole, functools.partial):
        own = (whole.args, whole.keywords)
    else:
        own = (_names(whole),)
    return any(part is each for each in own)


def _entries(owner: Any, names: Callable[[Any], dict[Any, Any]], value: Any, form: str) -> list[Place]:
    def place(key: Any) -> Place:
        def put(owner: Any, new: Any) -> None:
            dict.__setitem__(names(owner), key, new)

        return Place(form.format(key), owner, lambda owner: dict.get(names(owner), key), put)

    return [place(key) for key, each in list(dict.items(names(owner))) if each is value]


def _defaults(function: FunctionType, value: Any) -> list[Place]:
    code, defaults = function.__code__, function.__defaults__ or ()
    arguments = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]

    def place(i: int) -> Place:
        def put(function: Any, new: Any) -> None:
            function.__defaults__ = _with(function.__defaults__, i, new)

        return Place(f"'s default argument {arguments[i]!r}", function, lambda function: function.__defaults__[i], put)

    return [place(i) for i, each in enumerate(defaults) if each is value]


def _closure(function: FunctionType, value: Any) -> list[Place]:
    def put(cell: Any, new: Any) -> None:
        cell.cell_contents = new

    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    return [
        Place(f"'s closure, variable {name!r}", cell, lambda cell: cell.cell_contents, put)
        for name, cell in cells
        if any(each is value for each in gc.get_referents(cell))  # it may be empty
    ]


def _attribute(kind: type, name: str, each: Any) -> Place:
    def put(kind: Any, new: Any) -> None:
        type.__setattr__(kind, name, new)

    wrapped = isinstance(each, _WRAPPERS)
    suffix = f".{name} (a {type(each).__name__})" if wrapped else f".{name}"
    return Place(suffix, kind, lambda kind: vars(kind).get(name), put, type(each) if wrapped else lambda new: new)


def _item(one: list[Any], i: int) -> Place:
    def put(one: Any, new: Any) -> None:
        list.__setitem__(one, i, new)

    return Place(f"[{i}]", one, lambda one: one[i], put)


def _with(values: tuple[Any, ...], i: int, new: Any) -> tuple[Any, ...]:
    return (*values[:i], new, *values[i + 1 :])


def _unwrapped(one: Any) -> Any:
    return one.__func__ if isinstance(one, _WRAPPERS) else one


def _names(one: Any) -> dict[Any, Any]:
    """The attributes of an object. To ask the object itself would import a module that waits to be used first."""
    try:
        names = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return names if isinstance(names, dict) else {}


def _object(one: Any) -> str:
    return f"<{type(one).__module__}.{type(one).__qualname__} object>"
