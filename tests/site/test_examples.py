"""Runs the examples in the docstrings of all public names."""

import doctest

import pytest

import packviz as pv

NAMES = [name for name in dir(pv) if not name.startswith("_")]


@pytest.mark.parametrize("name", NAMES)
def test_example(name):
    value = getattr(pv, name)
    (test,) = doctest.DocTestFinder(recurse=False).find(value, name, globs={}) or [None]
    assert test, f"pv.{name} has no example"
    assert test.examples, f"pv.{name} has no example"
    assert not doctest.DocTestRunner().run(test).failed
