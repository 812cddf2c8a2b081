"""Finds the places that hold a function, and replaces the function in attributes and dicts.

`from module import function` creates another reference to the function. Attributes, default
arguments, closures and containers hold references, too. The garbage collector helps to find these
references. A place is named after the module, class, function or object that leads to it.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType, GeneratorType
from typing import Any, NamedTuple

from packviz.core.validation import kind_of

_LEVELS = (
    6  # how many references to follow from a function to a module or another object with a name
)
# The attributes through which functions, methods, partials and cells refer to other objects. The
# search names these places but never changes them.
_PARTS = (
    "__defaults__",
    "__kwdefaults__",
    "__closure__",
    "cell_contents",
    "__func__",
    "func",
    "args",
    "keywords",
)


class _Place(NamedTuple):
    """A place that holds a function.

    Attributes:
        name: the name of the place, such as `train.Tagger.pack` or `train.forward.__defaults__[0]`.
        owner: a callable that returns the object or dict that holds the function. If possible, it
            does not keep that object alive.
        key: the name of the attribute, or the key of the entry; `None` if the function cannot be
            replaced.
    """

    name: str
    owner: Callable[[], Any]
    key: Any

    def replace(self, function: FunctionType) -> Callable[[], object] | None:
        """Replaces the function. Returns a function that undoes this, or `None` if the place cannot be changed."""
        before = self._held()
        if self.key is None:
            return None
        self._put(function)
        return lambda: self._put(before) if self._held() is function else None

    def _held(self) -> Any:
        return _names(self.owner()).get(self.key)

    def _put(self, function: Any) -> None:
        owner = self.owner()
        if isinstance(owner, type):
            type.__setattr__(owner, self.key, function)
        else:
            dict.__setitem__(_names(owner), self.key, function)


@contextlib.contextmanager
def thawed() -> Iterator[None]:
    """Makes objects that `gc.freeze()` has frozen visible to the search.

    If any objects were frozen, all objects are frozen again afterwards.
    """
    frozen = gc.get_freeze_count()
    gc.unfreeze()
    try:
        yield
    finally:
        if frozen:
            gc.freeze()


def find(functions: list[FunctionType]) -> list[tuple[FunctionType, _Place]]:
    """Returns the places outside packviz that hold the functions, each as a pair of a function and
    a place.

    In torch itself, only attributes of modules are found. Local variables of running functions are
    not found.
    """
    gc.collect()  # the result must not contain garbage
    search = _Search(functions)
    return [(function, place) for function in functions for place in search.places(function)]


class _Search:
    def __init__(self, functions: list[FunctionType]) -> None:
        self._above: dict[
            int, list[Any]
        ] = {}  # for the id of each object, the objects that hold it
        self._known: dict[int, list[str]] = {}
        frontier: list[Any] = functions
        holders: list[Any] = []
        for _ in range(_LEVELS):
            wanted = {id(one) for one in frontier}
            self._above |= {one: [] for one in wanted}
            ours = {id(one) for one in (functions, frontier, holders, *self._above.values())}
            holders = gc.get_referrers(*frontier) if frontier else []
            holders = [
                h
                for h in holders
                if id(h) not in ours and not isinstance(h, (FrameType, GeneratorType))
            ]
            for holder in holders:
                for held in wanted & {id(each) for each in gc.get_referents(holder)}:
                    self._above[held].append(holder)
            frontier = [one for one in holders if id(one) not in self._above and _root(one) is None]

    def places(self, value: Any) -> Iterator[_Place]:
        for holder in self._above.get(id(value), ()):
            above = self._above.get(id(holder), ()) if isinstance(holder, dict) else ()
            for owner in [one for one in above if _is_namespace(holder, one)] or [holder]:
                if names := self._called(owner):
                    for step, key in _steps(owner, value):
                        yield _Place(min(names, key=len) + step, _weakly(owner), key)

    def _called(self, one: Any) -> list[str]:
        """Returns an object's own name, or the names of the places that hold it.

        The list is empty if `_root` leaves the object out.
        """
        root = _root(one)
        if root is None and id(one) not in self._known:
            self._known[id(one)] = []  # ends the search where an object leads back to itself
            names = [place.name for place in self.places(one)]
            self._known[id(one)] = [name for name in names if not name.startswith("torch.")]
        return self._known[id(one)] if root is None else [root] if root else []


def _root(one: Any) -> str | None:
    """Returns the name of a module, class, function or object, or an empty string if the search
    leaves it out.

    The result is `None` for containers, and for functions and objects that torch or the standard
    library creates for other code. All of these are named after the objects that hold them.
    """
    if isinstance(one, dict):
        module = name = (
            str(one["__name__"])
            if "__name__" in one and {"__builtins__", "__spec__"} & one.keys()
            else ""
        )
    elif isinstance(one, FunctionType):  # functools.wraps changes its __module__ and __qualname__
        module = str(one.__globals__.get("__name__"))
        name = f"{module}.{one.__code__.co_qualname}"
    else:
        kind = one if isinstance(one, type) else type(one)
        module, name = (
            str(kind.__module__),
            f"{kind.__module__}.{kind.__qualname__}",
        )  # __module__ may be anything
        name = name if kind is one else f"<{name} object>"
    package, is_scope = module.partition(".")[0], isinstance(one, (dict, type))
    if package == "packviz" or (package == "torch" and isinstance(one, type)):
        return ""
    is_made = not is_scope and (package == "torch" or package in sys.stdlib_module_names)
    return None if is_made or not name else name


def _steps(owner: Any, value: Any) -> list[tuple[str, Any]]:
    """Returns the ways in which an object holds a value.

    Each way is a pair: the text to append to the object's name, and the key (`None` if the value
    cannot be replaced). The search never runs properties or the `__getattr__` of the user's
    classes.
    """
    if isinstance(owner, (list, tuple)):
        return [(f"[{i}]", None) for i, each in enumerate(owner) if each is value]
    form = "[{!r}]" if isinstance(owner, dict) and "__name__" not in owner else ".{}"
    held = [key for key, each in list(_names(owner).items()) if each is value]
    found = [(form.format(key), None if key == "__wrapped__" else key) for key in held]
    if type(owner).__module__ in sys.stdlib_module_names:
        found += [(f".{part}", None) for part in _PARTS if getattr(owner, part, None) is value]
    return found or [(f" (in {kind_of(owner)})", None)]


def _is_namespace(names: dict[Any, Any], owner: Any) -> bool:
    """Returns whether a dict holds the attributes of an object.

    For a class, the keys are compared, because Python offers only a view of a class's dict.
    """
    return names.keys() == vars(owner).keys() if isinstance(owner, type) else _names(owner) is names


def _names(one: Any) -> Any:
    """Returns a dict as it is, or an object's attributes, without calling `__getattr__`, which may import a module."""
    if isinstance(one, (dict, type)):
        return one if isinstance(one, dict) else vars(one)
    try:
        names = object.__getattribute__(one, "__dict__")
    except AttributeError:
        return {}
    return names if isinstance(names, dict) else {}


def _weakly(owner: Any) -> Callable[[], Any]:
    try:
        return weakref.ref(owner)
    except TypeError:
        return lambda: owner
