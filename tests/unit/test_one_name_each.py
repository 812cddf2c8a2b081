"""Tests that all public signatures spell a concept in the same way."""

import ast
import inspect
from pathlib import Path

import pytest

import packviz as pv
from packviz.core.has_text import HasText

MODULES = [getattr(pv, name) for name in {*pv._HOME} - {*pv.__all__}]
SPELLINGS = {
    "lengths": {"lens", "seq_lens", "sizes"},
    "max_len": {"max_length", "maxlen", "padded_length", "width"},
    "total_length": {"to_length", "target_length"},
    "batch_first": {"first", "time_major"},
    "padding_value": {"pad_value", "fill_value"},
    "budget": {"seconds", "timeout", "time_limit"},
    "threads": {"num_threads", "n_threads"},
    "batch_size": {"batch", "batchsize"},
    "seed": {"random_state", "rng"},
    "progress": {"callback", "on_progress"},
    "stop": {"cancel", "should_stop"},
    "theme": {"mode_of_colour", "dark"},
}
"""The name of each concept, and names that it has in other libraries."""
ALIKE = (
    "max_len",
    "total_length",
    "padding_value",
    "seed",
    "window",
    "stop",
    "theme",
    "batch_size",
    "threads",
)
"""Arguments that have the same default and the same type everywhere, if they have one."""


def own(thing):
    return (getattr(thing, "__module__", "") or "").startswith("packviz")


def subclasses(base):
    return [below for one in base.__subclasses__() for below in (one, *subclasses(one))]


def signatures():
    """Yields the name and the parameters of each public function, class and method, including those of results."""
    things = {f"pv.{name}": getattr(pv, name) for name in pv.__all__}
    for module in MODULES:
        here = {
            k: v for k, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__
        }
        things |= {f"{module.__name__}.{k}": v for k, v in here.items()}
    results = {
        one.__qualname__: one
        for one in subclasses(HasText)
        if own(one) and not one.__name__.startswith("_")
    }
    for name, thing in [
        *things.items(),
        *results.items(),
    ]:  # nobody but packviz makes results, so their methods alone
        if inspect.isclass(thing):
            members = inspect.getmembers_static(thing)
            things |= {
                f"{name}.{k}": getattr(thing, k) for k, _ in members if not k.startswith("_")
            }
    for name, thing in things.items():
        if not name.rpartition(".")[2].startswith("_") and callable(thing) and own(thing):
            yield name, inspect.signature(thing).parameters


def test_every_verb_is_walked():
    walked = dict(signatures())
    assert {f"pv.{name}" for name in pv.__all__} <= {*walked}
    assert "pv.Ragged.forward" in walked
    assert "max_len" in walked["pv.align"]
    assert {"Findings.to_text", "FlopCount.to_text", "StatesComparison.needs_packing"} <= {*walked}


@pytest.mark.parametrize("concept", SPELLINGS)
def test_a_concept_has_one_spelling(concept):
    other = [
        f"{name}({wrong}=)"
        for name, found in signatures()
        for wrong in SPELLINGS[concept] & {*found}
    ]
    assert not other, f"call it {concept}"


@pytest.mark.parametrize("name", ALIKE)
def test_a_name_has_one_meaning(name):
    found = {where: given[name] for where, given in signatures() if name in given}
    kinds = {str(one.annotation).removesuffix(" | None") for one in found.values()} - {"Any"}
    assert len(kinds) <= 1, found
    defaults = {str(one.default) for one in found.values() if one.default is not one.empty}
    assert len(defaults) <= 1, found


def test_a_verdict_is_a_property():
    """This holds for every class, public or not."""
    found = []
    for path in Path(pv.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and node.name == "verdict":
                found.append((path.name, [ast.unparse(one) for one in node.decorator_list]))
    assert len(found) >= 4
    assert not [one for one in found if "property" not in one[1]]
