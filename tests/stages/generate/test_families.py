"""What every operator family is held to, over the core suite: a template is whole, pure, and says what it does."""

import ast
from functools import cache

import pytest

from kernelwright.kernelbench.problem import Problem
from kernelwright.kernelbench.sources import suite
from kernelwright.stages.compile import BUILDERS
from kernelwright.stages.generate import FAMILIES
from kernelwright.stages.generate.template import Template
from kernelwright.stages.translate import translate
from kernelwright.stages.translate.graph import OpInfo

PROBLEMS = {problem.name: problem for problem in suite("core")}
DEVICES = ("cpu", "cuda")

everywhere = pytest.mark.parametrize("name", PROBLEMS)


@cache
def translated(name: str) -> tuple[Problem, OpInfo]:
    return PROBLEMS[name], translate(PROBLEMS[name])


def offered(family: str, name: str) -> list[Template]:
    problem, info = translated(name)
    return [template for device in DEVICES for template in FAMILIES[family](problem, info, device)]


@pytest.mark.parametrize("family", FAMILIES)
def test_it_offers_something(family: str) -> None:
    assert any(offered(family, name) for name in PROBLEMS)


@everywhere
def test_names_are_unique_over_all_families(name: str) -> None:
    names = [template.name for family in FAMILIES for template in offered(family, name)]
    assert len(names) == len(set(names))


@everywhere
@pytest.mark.parametrize("family", FAMILIES)
def test_every_template_is_whole(family: str, name: str) -> None:
    _, info = translated(name)
    for template in offered(family, name):
        assert template.backend in BUILDERS
        assert template.summary.endswith(".")
        assert template.default.keys() == template.space.keys()
        assert all(template.default[parameter] in choices for parameter, choices in template.space.items())
        assert set(template.library_ops) <= {node.op for node in info.graph.nodes}


@everywhere
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_choice_gives_the_same_file_and_it_defines_model_new(family: str, name: str) -> None:
    for first, second in zip(offered(family, name), offered(family, name), strict=True):
        candidate = first.candidate(first.default)
        assert candidate.source == second.render(dict(second.default))
        assert "ModelNew" in {n.name for n in ast.parse(candidate.source).body if isinstance(n, ast.ClassDef)}
        assert (candidate.template, candidate.backend) == (first.name, first.backend)
        assert candidate.tunables == first.default
