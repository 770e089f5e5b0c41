"""An equal step is taken from the cache; another config, input or seed is not; a damaged entry is thrown away."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hat_pipelines.cache import Cache
from hat_pipelines.plan import Job
from hat_pipelines.runs import RunFolder

Make = Callable[..., Job]
Start = Callable[..., RunFolder]


def states(folder: RunFolder) -> list[str]:
    return [record.state for record in folder.record.steps.values()]


def test_an_equal_run_is_taken_from_the_cache_with_the_same_bytes(make_job: Make, start: Start, tmp_path: Path) -> None:
    first = start(make_job(), cache=tmp_path / "cache")
    second = start(make_job(), cache=tmp_path / "cache")
    assert states(first) == ["done"] * 4
    assert states(second) == ["cached"] * 4
    for name in first.record.steps:
        assert second.step(name).result.read_bytes() == first.step(name).result.read_bytes()
        files = [path.relative_to(first.step(name).artifacts) for path in first.step(name).artifacts.rglob("*")]
        for file in files:
            assert (second.step(name).artifacts / file).read_bytes() == (first.step(name).artifacts / file).read_bytes()
    assert second.step("draw").progress.exists()


def test_a_change_reaches_exactly_what_depends_on_it(make_job: Make, start: Start, tmp_path: Path) -> None:
    start(make_job(), cache=tmp_path / "cache")
    changed = start(make_job("steps.add-hsa.seed=9"), cache=tmp_path / "cache")
    assert {name: record.state for name, record in changed.record.steps.items()} == {
        "draw": "cached",
        "add-naive": "cached",
        "add-hsa": "done",
        "total": "cached",  # its input has the same digest, whatever made it
    }
    assert states(start(make_job("steps.draw.seed=9"), cache=tmp_path / "cache")) == ["done"] * 4


def test_a_damaged_entry_is_computed_again(make_job: Make, start: Start, tmp_path: Path) -> None:
    first = start(make_job(), cache=tmp_path / "cache")
    kept = next((tmp_path / "cache").glob("*/artifacts/numbers.json"))
    kept.unlink()
    kept.write_text("[0]")
    assert first.step("draw").artifact("numbers").read_text() != "[0]"
    second = start(make_job(), cache=tmp_path / "cache")
    assert states(second) == ["done", "cached", "cached", "cached"]
    assert second.step("draw").result.read_bytes() == first.step("draw").result.read_bytes()


def test_collection_removes_what_is_old_and_says_so_first(make_job: Make, start: Start, tmp_path: Path) -> None:
    folder = start(make_job(), cache=tmp_path / "cache")
    cache = Cache(tmp_path / "cache")
    assert cache.collect(older_than_s=3600).entries == 0
    told = cache.collect(older_than_s=0, dry_run=True)
    assert told.entries == len(list((tmp_path / "cache").iterdir())) > 0
    assert cache.collect(older_than_s=0).entries == told.entries
    assert list((tmp_path / "cache").iterdir()) == []
    assert folder.step("draw").artifact("numbers").exists()
