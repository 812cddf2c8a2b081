"""Replaces torch's functions for packing and padding with packviz's, and restores torch's functions later."""

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
        everywhere: whether the patch also replaces torch's functions in places outside torch.
        replaced: the places in which this patch put one of packviz's functions, such as
            `torch.nn.utils.rnn.pack_sequence`.
        foreign: names in `torch.nn.utils.rnn` that referred to neither torch's function nor
            packviz's, and were left unchanged.
        unreached: places outside torch that still refer to one of torch's functions, such as
            `train.Tagger.pack` or `train.forward.__defaults__[0]`.
    """

    def __init__(self, everywhere: bool = False) -> None:
        """Replaces torch's functions in torch's modules and, if `everywhere` is True, in other places."""
        with _lock, holders.thawed():
            self.everywhere = everywhere
            done: dict[str, bool] = {}  # by name, which several places may share
            for function, place in holders.find(
                [getattr(original, name) for name in original.NAMES]
            ):
                undo = None
                if everywhere or place.name.startswith("torch."):
                    undo = place.replace(getattr(packing, function.__name__))
                if undo is not None:
                    _undoing.append(undo)
                done[place.name] = done.get(place.name, True) and undo is not None
            self.replaced = tuple(sorted(name for name in done if done[name]))
            self.unreached = tuple(sorted(name for name in done if not done[name]))
            left = [
                name for name in original.NAMES if getattr(rnn, name) is not getattr(packing, name)
            ]
            self.foreign = tuple(f"{rnn.__name__}.{name}" for name in left)
            _in_force.append(self)

    @property
    def is_in_force(self) -> bool:
        """True until the patch is undone."""
        return self in _in_force

    def undo(self) -> None:
        """Ends the patch. When the last of several patches ends, torch's functions are restored.

        If the patch was already undone, this does nothing. If other code has replaced one of
        packviz's functions in the meantime, its replacement stays.
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
        """Returns the names of the changed and the unchanged places, one per line."""
        before = (
            ("(an earlier patch put them there)",)
            if len(self.foreign) < len(original.NAMES)
            else ()
        )
        lines = []
        for head, names in (
            ("packviz's functions replace torch's in these places:", self.replaced or before),
            ("Left unchanged, because they are neither torch's nor packviz's:", self.foreign),
            (f"{_STILL}:", self.unreached),
        ):
            lines += [head, *(f"  {name}" for name in names)] if names else []
        if self.unreached:
            lines.append(self._advice)
        return "\n".join(
            lines if self.is_in_force else ["This patch was undone. While it was in force:", *lines]
        )

    @property
    def _advice(self) -> str:
        option = "" if self.everywhere else " pass everywhere=True,"
        return f"To change them,{option} call patch_torch() before these imports, or run `packviz patched`."


_STILL = "These places still refer to torch's functions"
_FEW = 12


def patch_torch(*, everywhere: bool = False) -> Patch:
    """Replaces torch's packing and padding with packviz's, for code that calls torch's functions.

    From then on, `torch.nn.utils.rnn.pack_padded_sequence`, `pad_packed_sequence`, `pack_sequence`
    and `unpack_sequence` are packviz's functions. These return the same results as torch's, and
    their backward pass takes linear time (see `packviz.ops.packing`). Call `patch_torch` first,
    before your own modules are imported:

        import packviz as pv
        pv.patch_torch()  # import the model after this line

    To patch only temporarily, use `with pv.patch_torch(): …`. For a program that you don't want to
    change, use the command `packviz patched train.py`.

    Code that ran earlier may have its own reference to one of torch's functions, for example after
    `from torch.nn.utils.rnn import pack_padded_sequence`. `patch_torch` finds such references in
    attributes of modules, classes and objects, default arguments, closures, partials, and entries
    of dicts, lists and tuples. It names their places in `.unreached` and in a warning. With
    `everywhere=True`, the references in attributes and dicts are replaced as well, and `.unreached`
    and the warning name only the other places. Local variables of running functions are neither
    found nor replaced. Code that imports the functions while the patch is in force keeps packviz's
    functions afterwards. If you pickle an object that refers to one of packviz's functions, such as
    a whole model with an attribute `pack`, it can be loaded only where packviz is installed. A
    `state_dict` contains no such reference.

    A patch applies to the whole process. A thread that packs while a patch begins or ends gets
    either torch's function or packviz's. Both return the same results, and can be mixed. A patch
    does not apply to other processes, so a spawned worker has to call `patch_torch` itself. Several
    patches can be in force at once. torch's functions are restored once every patch has been
    undone.

    Args:
        everywhere: whether to replace torch's functions in attributes and dicts outside torch, too.

    Returns:
        A `Patch`, whose attributes `.replaced`, `.foreign` and `.unreached` contain names of
        places, and whose method `.undo()` ends the patch. A `Patch` is also a context manager.

    Warns:
        UserWarning: some places outside torch still refer to torch's functions. The warning names
            them.

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
        warnings.warn(
            f"{_STILL}: {', '.join(patch.unreached[:_FEW])}{more}. {patch._advice}", stacklevel=2
        )
    return patch


_lock = threading.RLock()
_in_force: list[Patch] = []
_undoing: list[Callable[[], object]] = []  # one for each place that was changed
