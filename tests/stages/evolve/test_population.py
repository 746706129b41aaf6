"""Selection: who has children, and that nobody who is best is ever lost."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from kernelwright.stages.evolve.member import Member, best
from kernelwright.stages.evolve.population import Cell, choose_pair, choose_parent, populate
from kernelwright.stages.types import Backend
from tests.stages.evolve.lineage import histories, member

any_history = given(histories(), st.integers(1, 5), st.integers(1, 4))
any_place = given(histories(), st.integers(0, 20), st.integers(0, 99))


@any_history
def test_the_fastest_is_never_lost(history: list[Member], islands: int, migrate_every: int) -> None:
    leader, elite = best(history), best(populate(history, islands, migrate_every).elites.values())
    assert (leader and leader.fitness) == (elite and elite.fitness)


@any_history
def test_a_cell_holds_the_fastest_of_its_own(history: list[Member], islands: int, migrate_every: int) -> None:
    for cell, elite in populate(history, islands, migrate_every).elites.items():
        rivals = [m for m in history if m.candidate.backend is cell.backend and m.bottleneck == cell.bottleneck]
        rivals = [m for m in rivals if m.directive == cell.technique and m.fitness is not None]
        assert elite.fitness is not None
        assert all(elite.fitness >= (m.fitness or 0.0) for m in rivals)


@any_place
def test_choices_depend_on_the_history_alone(history: list[Member], slot: int, seed: int) -> None:
    """A resumed run reads the same rows, perhaps in another order, and must choose the same parents."""
    again = populate(list(reversed(history)))
    population = populate(history)
    assert choose_parent(population, 10, slot, seed) == choose_parent(again, 10, slot, seed)
    assert choose_pair(population, 10, slot, seed) == choose_pair(again, 10, slot, seed)


@any_place
def test_only_what_was_timed_to_the_end_has_children(history: list[Member], slot: int, seed: int) -> None:
    parent = choose_parent(populate(history), 10, slot, seed)
    assert (parent is None) == all(m.fitness is None for m in history)
    assert parent is None or parent.fitness is not None


@any_place
def test_a_pair_is_of_two_cells(history: list[Member], slot: int, seed: int) -> None:
    population = populate(history)
    pair = choose_pair(population, 10, slot, seed)
    if pair is None:
        assert len(population.elites) <= 1
    else:
        assert pair[0] != pair[1]


def test_faster_parents_are_chosen_more_often_and_slower_ones_still_are() -> None:
    history = [
        member("a", 1.0, directive="fusion: a"),
        member("b", 2.0, slot=1, directive="dtype: b"),
        member("c", 4.0, slot=2, directive="algorithmic: c"),
    ]
    population = populate(history, islands=1)
    parents = [choose_parent(population, 1, 0, seed) for seed in range(600)]
    chosen = Counter(parent.directive for parent in parents if parent is not None)
    assert chosen["algorithmic"] > chosen["dtype"] > chosen["fusion"] > 0


def test_islands_keep_to_themselves_until_they_migrate() -> None:
    early = [member("slow", 1.1, slot=0), member("fast", 3.0, slot=1, directive="dtype: x")]
    apart = populate(early, islands=2, migrate_every=2)
    assert [sorted(m.hash for m in island.values()) for island in apart.islands] == [[m.hash] for m in early]
    late = [*early, member("wrong", generation=1)]
    mixed = populate(late, islands=2, migrate_every=2)
    assert {m.hash for m in mixed.islands[0].values()} == {m.hash for m in early}


def test_other_parameters_compete_in_their_parents_cell() -> None:
    first = member("first", 1.5, directive="fusion: whole row")
    tuned = member("tuned", 1.8, generation=1, directive="tuning: BLOCK=64", parents=[first])
    twice = member("twice", 1.7, generation=2, directive="tuning: BLOCK=32", parents=[tuned])
    assert populate([first, tuned, twice]).elites == {Cell(Backend.CPP, "memory", "fusion"): tuned}


def test_a_pair_is_of_one_back_end_and_of_no_family_where_that_can_be() -> None:
    first = member("first", 2.0)
    child = member("child", 2.1, generation=1, directive="dtype: x", parents=[first])
    stranger = member("stranger", 1.2, slot=4, directive="memory_access: x")
    abroad = member("abroad", 9.0, slot=4, directive="persistent: x", backend=Backend.TRITON)
    population = populate([first, child, stranger, abroad], islands=1)
    pairs = [choose_pair(population, 2, 0, seed) for seed in range(200)]
    partners = {b.hash for a, b in (p for p in pairs if p is not None) if a.hash == first.hash}
    assert partners == {stranger.hash}
