"""`patch_torch`: the drop-ins under torch's own names, and torch's functions back again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from types import FunctionType, ModuleType, TracebackType
from typing import Any

from torch.nn.utils import rnn

from packviz.core.worded import Worded
from packviz.ops import original, packing


class Patch(Worded):
    """torch's names with packviz's functions under them. Made by `patch_torch`.

    As a context manager it ends with the block.

    Attributes:
        replaced: the names that this call gave another function, such as `torch.nn.utils.rnn.pack_sequence`.
        foreign: names of `torch.nn.utils.rnn` that held neither torch's function nor packviz's, and were left alone.
        unreached: names outside of torch that hold torch's function still, because it was imported there before.
    """

    def __init__(self) -> None:
        """Replaces torch's functions wherever torch looks them up."""
        with _lock:
            self.replaced = _exchange(_is_torchs, packing)
            in_place = _held(rnn, _is_ours)
            self.foreign = tuple(f"{rnn.__name__}.{name}" for name in original.NAMES if name not in in_place)
            others = (one for one in _modules() if not _belongs(one, "torch") and not _belongs(one, "packviz"))
            self.unreached = _names(others, _is_torchs)
            _in_force.append(self)

    @property
    def is_in_force(self) -> bool:
        """Whether it has not been undone."""
        return self in _in_force

    def undo(self) -> None:
        """Ends it. torch's functions come back with the last of several patches, in whatever order these end.

        Done twice, it does nothing. A name that has got a third function since then keeps it.
        """
        with _lock:
            if self.is_in_force:
                _in_force.remove(self)
                if not _in_force:
                    _exchange(_is_ours, original)

    def __enter__(self) -> Patch:
        """Gives the patch itself.

        Raises:
            RuntimeError: it was undone.
        """
        if not self.is_in_force:
            raise RuntimeError("this patch was undone; call patch_torch() again")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Undoes it."""
        self.undo()

    def to_text(self) -> str:
        """What was replaced and what was not, a name per line."""
        before = ("(they were there before)",) if len(self.foreign) < len(original.NAMES) else ()
        said = []
        for head, names in (
            ("packviz's functions are under torch's names:", self.replaced or before),
            ("Left alone, for they are neither torch's nor packviz's:", self.foreign),
            ("Not reached, for torch's functions were imported there before:", self.unreached),
        ):
            said += [head, *(f"  {name}" for name in names)] if names else []
        if self.unreached:
            said.append("To reach them, call patch_torch() before they are imported.")
        return "\n".join(said if self.is_in_force else ["Undone. While it was in force:", *said])


def patch_torch() -> Patch:
    """Puts packviz's packing and padding in the place of torch's, for code that calls torch's.

    From then on `torch.nn.utils.rnn.pack_padded_sequence`, `pad_packed_sequence`, `pack_sequence` and `unpack_sequence`
    are those of packviz, wherever torch itself looks them up: what they give is the same, and their backward pass takes
    linear time (see `packviz.ops.packing`). Call it first, before the modules of your own are imported:

        import packviz as pv
        pv.patch_torch()  # a line further on, the model is imported

    or for a while, as in `with pv.patch_torch(): …`.

    What another module has imported by name before, `from torch.nn.utils.rnn import pack_padded_sequence`, is that
    module's own; it is named in the result and left alone. In the same way a module that imports them so while the
    patch is in force keeps packviz's functions after it.

    The names belong to the whole process. Threads that pack meanwhile get the one function or the other, which give the
    same and can be mixed. Other processes are not reached: a worker that is spawned has to call this again. To call it
    again in the same process does no harm: torch's functions are back when every patch is undone.

    Returns:
        A `Patch`: `.replaced`, `.foreign` and `.unreached` names, `.undo()`; also a context manager.
    """
    return Patch()


_lock = threading.RLock()
_in_force: list[Patch] = []


def _is_torchs(function: FunctionType) -> bool:
    return function.__globals__ is vars(rnn)


def _is_ours(function: FunctionType) -> bool:
    return function.__module__ == packing.__name__  # also one that was defined before a reload


def _exchange(present: Callable[[FunctionType], bool], new: ModuleType) -> tuple[str, ...]:
    """Puts the functions of a module in place of those present in torch's modules; gives the names."""
    those = [module for module in _modules() if _belongs(module, "torch")]
    replaced = _names(those, present)
    for module in those:
        for name, function in _held(module, present).items():
            _of(module)[name] = getattr(new, function)
    return replaced


def _names(modules: Iterable[ModuleType], present: Callable[[FunctionType], bool]) -> tuple[str, ...]:
    return tuple(f"{_of(module)['__name__']}.{name}" for module in modules for name in _held(module, present))


def _held(module: ModuleType, present: Callable[[FunctionType], bool]) -> dict[str, str]:
    """Under which names a module holds the functions that are meant."""
    return {
        name: value.__name__
        for name, value in list(_of(module).items())
        if type(value) is FunctionType and value.__name__ in original.NAMES and present(value)
    }


def _modules() -> list[ModuleType]:
    """Those that are imported, each once."""
    return list({id(one): one for one in list(sys.modules.values()) if isinstance(one, ModuleType)}.values())


def _belongs(module: ModuleType, package: str) -> bool:
    return str(_of(module).get("__name__")).partition(".")[0] == package


def _of(module: ModuleType) -> dict[str, Any]:
    """What a module holds. To ask the module itself would import one that waits to be used first."""
    names: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return names
