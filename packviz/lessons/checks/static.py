"""The exercise on static graphs (notebook 09)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from packviz.lessons.exercise import NOT_YET, Comparison, Verdict, entries, exercise

if TYPE_CHECKING:
    from packviz.check.networks import Network

_CASES = ((5, [5, 3]), (5, [5, 5]), (5, [4, 2]), (6, [1, 1]))
"""Time steps, and lengths."""


@exercise
def mended(answer: type[Network]) -> Verdict:
    """A network that must return its packed output as a padded tensor over all time steps (notebook 09)."""
    import torch  # noqa: PLC0415

    from packviz.check import networks  # noqa: PLC0415
    from packviz.check.static import check_static  # noqa: PLC0415

    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(0)
        yours, target = answer(), networks.FullWidth()
        target.load_state_dict(yours.state_dict())
        made = {str(lengths): yours(*networks.example(steps, lengths)) for steps, lengths in _CASES}
        wanted = {str(lengths): target(*networks.example(steps, lengths))[0] for steps, lengths in _CASES}
    if any(one is None or one is ... for one in made.values()):
        return Verdict(False, NOT_YET)
    found = check_static(yours, networks.example())
    if not found.ok:
        hint = "Which function makes a padded tensor of it again?" if "returned" in found.rules else "Look at the ✗."
        return Verdict(False, f"Not yet: a compiler with fixed shapes refuses this. {hint}", [found])
    if odd := [type(one).__name__ for one in made.values() if not isinstance(one, torch.Tensor)]:
        return Verdict(False, f"Return the padded output alone; yours is a {odd[0]}.", [found])
    steps, all_steps = ([one.shape[0] if one.dim() else 0 for one in some.values()] for some in (made, wanted))
    rows = Comparison(f"time steps of the output, lengths {', '.join(made)}", *entries(steps, all_steps))
    if steps != all_steps:
        hint = "Its size depends on the lengths. What tells pad_packed_sequence how many steps there are?"
        if steps[:3] == all_steps[:3]:
            hint = "The last x has 6 time steps. Take their number from x."
        elif any(one.dim() == 3 and one.shape[1] == n for one, n in zip(made.values(), all_steps, strict=True)):
            hint = "Batch and time have changed places: this network is time first, (T, B, …)."
        return Verdict(False, f"Not yet. {hint}", [found, rows])
    for lengths in made:
        if made[lengths].shape != wanted[lengths].shape or not torch.allclose(made[lengths], wanted[lengths]):
            return Verdict(False, f"The output for lengths {lengths} is not the LSTM's, with zeros after it.", [found])
    return Verdict(True, "Every size is fixed, and every number is as before.", [found, rows])
