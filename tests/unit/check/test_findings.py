"""Findings: their order, their words, and their table."""

from hypothesis import given
from hypothesis import strategies as st

from packviz.check.findings import LEVELS, Finding, Findings

ERROR = Finding("error", "returned", "It goes out.", "net.py, line 3: return x", "Pad it.")
WARNING = Finding("warning", "unsorted", "A sort.\nOn the CPU.")
INFO = Finding("info", "final_states", "Fine.")

one_finding = st.builds(
    Finding, st.sampled_from(list(LEVELS)), st.text(), st.text(), st.text(), st.text()
)


def test_an_assignment_in_a_fix_is_not_broken_before_its_call():
    """A break inside brackets can be pasted, one before `=` cannot."""
    code = "x = x.masked_fill(~mask, 0)"
    for words in range(30):
        lines = (
            Finding("info", "long", "message", fix="word " * words + code).to_text().splitlines()
        )
        (begin,) = [line for line in lines if "x = x.masked_fill(" in line]
        rest = lines[lines.index(begin) + 1 :]
        compile("\n".join([begin[begin.index("x = ") :], *rest]), "fix", "exec")


def test_a_finding_in_words():
    assert (
        repr(ERROR)
        == "✗ error: returned\n    It goes out.\n    where: net.py, line 3: return x\n    fix: Pad it."  # noqa: E501
    )
    assert WARNING.to_text() == "! warning: unsorted\n    A sort.\n    On the CPU."


def test_the_gravest_come_first():
    other = Finding("warning", "second", "Later.")
    found = Findings("Network", (INFO, WARNING, ERROR, other))
    assert list(found) == [ERROR, WARNING, other, INFO]
    assert found[0] is ERROR
    assert len(found) == 4
    assert found.of_level("warning") == (WARNING, other)
    assert found.rules == ["returned", "unsorted", "second", "final_states"]
    assert found.headline == "✗ Network: 1 error, 2 warnings, 1 info"
    assert repr(found).splitlines()[:2] == [found.headline, "✗ error: returned"]


def test_only_errors_and_doubts_are_not_ok():
    assert not Findings("N", (ERROR,)).ok
    assert Findings("N", (WARNING, INFO)).ok
    assert Findings("N").ok
    assert not Findings("N")
    for finding in (ERROR, WARNING, INFO):
        assert Findings("N", (finding,))
    doubt = Findings("N", (Finding("warning", "undecided", "Why."),))
    assert doubt.undecided
    assert not doubt.ok
    assert repr(Findings("N")) == "✓ N: nothing found"
    assert Findings("N", (INFO,)).headline == "✓ N: 1 info"
    assert Findings("N", (WARNING, INFO)).headline == "! N: 1 warning, 1 info"


@given(st.lists(one_finding, max_size=5))
def test_the_table_says_what_the_text_says(found):
    findings = Findings("Network", tuple(found))
    assert findings.table.title == findings.headline
    cells = [cell for row in findings.table.rows for cell in row]
    for finding in found:
        assert {finding.headline, finding.message, finding.where, finding.fix} <= {*cells, ""}
    labels = [name for finding in findings for name in ("where", "fix") if getattr(finding, name)]
    assert findings.to_html().count("<tr>") == len(found) + len(labels)
