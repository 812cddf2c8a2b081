"""Replaces torch's functions for packing and padding with packviz's, and restores them later."""

from __future__ import annotations

import sys
from types import ModuleType

from packviz.core.util import HasText
from packviz.ops import original, packing


class Patch(HasText):
    """A replacement of torch's functions with packviz's, made by `patch_torch`.

    If the patch is used as a context manager, it ends with the block.

    Attributes:
        places: the names that this patch changed, such as `torch.nn.utils.rnn.pad_packed_sequence`.
    """

    def __init__(self) -> None:
        """Replaces torch's functions in all modules that are loaded, except packviz's own."""
        self._changed: list[tuple[dict[str, object], str, str]] = []
        for module_name, module in list(sys.modules.items()):
            package_name = module_name.partition(".")[0]
            if package_name != "packviz" and isinstance(module, ModuleType):
                self._patch_module(module_name, vars(module))
        self.places = tuple(place for _, _, place in self._changed)

    def _patch_module(self, module_name: str, variables: dict[str, object]) -> None:
        for function_name in original.FUNCTION_NAMES:
            function = getattr(original, function_name)
            for name, value in list(variables.items()):
                if value is function:
                    variables[name] = getattr(packing, function_name)
                    self._changed.append((variables, name, f"{module_name}.{name}"))

    def undo(self) -> None:
        """Puts torch's functions back where this patch replaced them.

        A place that other code has changed in the meantime stays as it is.
        """
        while self._changed:
            variables, name, _ = self._changed.pop()
            for function_name in original.FUNCTION_NAMES:
                if variables.get(name) is getattr(packing, function_name):
                    variables[name] = getattr(original, function_name)

    def __enter__(self) -> Patch:
        """Returns the patch itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Undoes the patch."""
        self.undo()

    def to_text(self) -> str:
        """Returns how many places the patch changed, and their names."""
        names = [f"  {place}" for place in self.places]
        return "\n".join([f"packviz's functions replaced torch's in {len(names)} places:", *names])


def patch_torch() -> Patch:
    """Replaces torch's packing and padding with packviz's, for code that calls torch's functions.

    From then on, `torch.nn.utils.rnn.pack_padded_sequence` and `pad_packed_sequence` are packviz's
    functions. These return the same results as torch's, and their backward pass takes linear time
    (see `packviz.ops.packing`). torch's `pack_sequence` and `unpack_sequence` call these two, so
    they gain, too::

        import packviz as pv
        pv.patch_torch()

    The functions are replaced wherever a module that is loaded holds them in a global variable, for
    example after `from torch.nn.utils.rnn import pack_padded_sequence`. A class, an object, a
    default argument, a `functools.partial` or a closure that already holds torch's function keeps
    it. To change these, too, call `patch_torch` before the code that makes them is imported.

    A patch applies to one process; each process that a DataLoader or a launcher starts has to call
    `patch_torch` itself. Code that imports the functions while a patch is in force keeps packviz's.
    A pickled object that holds one of packviz's functions can be loaded only where packviz is
    installed; a `state_dict` holds none.

    Returns:
        A `Patch`, which lists what it changed, and whose method `.undo()` ends it. To patch only
        for a while, use it as a context manager: `with pv.patch_torch(): …`. A patch within a patch
        changes only what is left to change.

    Examples:
        >>> import packviz as pv, torch
        >>> utilities = torch.nn.utils.rnn
        >>> with pv.patch_torch():
        ...     utilities.pad_packed_sequence is pv.pad_packed_sequence
        True
        >>> utilities.pad_packed_sequence is pv.pad_packed_sequence
        False
    """
    return Patch()
