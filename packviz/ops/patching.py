"""Replaces torch's functions with packviz's, and restores them later."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable

from torch.nn.utils import rnn

from packviz.core.has_text import HasText
from packviz.ops import holders, original, packing


class Patch(HasText):
    """A replacement of torch's functions with packviz's, made by `patch_torch`.

    If the patch is used as a context manager, it ends with the block.

    Attributes:
        everywhere: whether it also replaces functions outside of torch.
        replaced: the places in which this call put packviz's function, such as `torch.nn.utils.rnn.pack_sequence`.
        foreign: names in `torch.nn.utils.rnn` that referred to neither torch's function nor packviz's, and were left
            unchanged.
        unreached: places outside of torch that still refer to torch's function, such as `train.Tagger.pack` or
            `train.forward.__defaults__[0]`.
    """

    def __init__(self, everywhere: bool = False) -> None:
        """Replaces the functions in torch's modules, or everywhere."""
        with _lock, holders.thawed():
            self.everywhere = everywhere
            done: dict[str, bool] = {}  # by name, which several places may share
            for function, place in holders.find([getattr(original, name) for name in original.NAMES]):
                undo = None
                if everywhere or place.name.startswith("torch."):
                    undo = place.replace(getattr(packing, function.__name__))
                if undo is not None:
                    _undoing.append(undo)
                done[place.name] = done.get(place.name, True) and undo is not None
            self.replaced = tuple(sorted(name for name in done if done[name]))
            self.unreached = tuple(sorted(name for name in done if not done[name]))
            left = [name for name in original.NAMES if getattr(rnn, name) is not getattr(packing, name)]
            self.foreign = tuple(f"{rnn.__name__}.{name}" for name in left)
            _in_force.append(self)

    @property
    def is_in_force(self) -> bool:
        """True until the patch is undone."""
        return self in _in_force

    def undo(self) -> None:
        """Ends the patch. When the last of several patches ends, torch's functions are restored.

        If the patch was already undone, this does nothing. A place that was given a third function in the meantime
        keeps that function.
        """
        with _lock:
            if self.is_in_force:
                _in_force.remove(self)
                while _undoing and not _in_force:
                    _undoing.pop()()

    def __enter__(self) -> Patch:
        """Returns the patch itself.

        Raises:
            RuntimeError: the patch was already undone.
        """
        if not self.is_in_force:
            raise RuntimeError("this patch was undone; call patch_torch() again")
        return self

    def __exit__(self, *_: object) -> None:
        """Undoes the patch."""
        self.undo()

    def to_text(self) -> str:
        """Returns the names of the places that were replaced, and of those that were not, one per line."""
        before = ("(an earlier patch put them there)",) if len(self.foreign) < len(original.NAMES) else ()
        lines = []
        for head, names in (
            ("packviz's functions are in place of torch's:", self.replaced or before),
            ("Left alone, because they are neither torch's nor packviz's:", self.foreign),
            (f"{_STILL}:", self.unreached),
        ):
            lines += [head, *(f"  {name}" for name in names)] if names else []
        if self.unreached:
            lines.append(self._advice)
        return "\n".join(lines if self.is_in_force else ["Undone. While it was in force:", *lines])

    @property
    def _advice(self) -> str:
        option = "" if self.everywhere else " pass everywhere=True,"
        return f"To reach them,{option} call patch_torch() before they are imported, or start with `packviz patched`."


_STILL = "Still torch's functions, imported before"
_FEW = 12


def patch_torch(*, everywhere: bool = False) -> Patch:
    """Replaces torch's packing and padding with packviz's, for code that calls torch's functions.

    From then on, `torch.nn.utils.rnn.pack_padded_sequence`, `pad_packed_sequence`, `pack_sequence` and
    `unpack_sequence` are packviz's functions. They return the same results, and their backward pass takes linear time
    (see `packviz.ops.packing`). Call `patch_torch` first, before your own modules are imported:

        import packviz as pv
        pv.patch_torch()  # import the model after this line

    To patch only temporarily, use `with pv.patch_torch(): …`. For a program that you don't want to change, use the
    command `packviz patched train.py`.

    Code that ran earlier may have its own reference to torch's function, as after `from torch.nn.utils.rnn import
    pack_padded_sequence`. All such places are found, and named in `.unreached` and in a warning: attributes of modules,
    classes and objects, default arguments, closures, partials, and entries of dicts, lists and tuples. With
    `everywhere=True`, attributes and the entries of dicts are replaced as well, and only the others are named. Local
    variables of running functions are neither found nor replaced. Code that imports the functions while the patch is in
    force keeps packviz's functions afterwards. If an object that refers to one of them, such as a whole model with an
    attribute `pack`, is pickled while the patch is in force, it can be loaded only where packviz is installed. A
    `state_dict` contains no such reference.

    A patch applies to the whole process. A thread that packs while a patch begins or ends gets either torch's function
    or packviz's. Both return the same results, and can be mixed. A patch does not apply to other processes, so a
    spawned worker has to call `patch_torch` itself. Several patches can be in force at once. torch's functions are
    restored when every patch is undone.

    Args:
        everywhere: whether to replace torch's functions in attributes and dicts outside of torch, too.

    Returns:
        A `Patch` with the names `.replaced`, `.foreign` and `.unreached`, and the method `.undo()`. It is also a
        context manager.

    Warns:
        UserWarning: some places outside of torch still refer to torch's functions. The warning names them.

    Examples:
        >>> import packviz as pv, torch
        >>> utilities = torch.nn.utils.rnn
        >>> with pv.patch_torch():
        ...     utilities.pad_packed_sequence is pv.pad_packed_sequence
        True
        >>> utilities.pad_packed_sequence is pv.pad_packed_sequence
        False
    """
    patch = Patch(everywhere)
    if patch.unreached:
        more = f" and {len(patch.unreached) - _FEW} more" if len(patch.unreached) > _FEW else ""
        warnings.warn(f"{_STILL}: {', '.join(patch.unreached[:_FEW])}{more}. {patch._advice}", stacklevel=2)
    return patch


_lock = threading.RLock()
_in_force: list[Patch] = []
_undoing: list[Callable[[], object]] = []  # one for each place that was changed
