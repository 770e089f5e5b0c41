"""The training pool and the held-out pool of names and phrases share nothing, and both cover the harness."""

from __future__ import annotations

import re

from hat_harness.spec import NAME_PATTERN, Harness
from hat_scenarios.live_commerce import LiveCommerce, Settings
from hat_scenarios.live_commerce.backend import carry_out
from hat_scenarios.live_commerce.expert import plan_of, room_before
from hat_scenarios.live_commerce.words import base_words

TRAIN, HELD_OUT = LiveCommerce().vocabulary(), LiveCommerce().vocabulary(held_out=True)
WORD = re.compile(r"[a-z]{2,12}\Z")


def words_of(pool: dict[str, tuple[str, ...]]) -> list[str]:
    return [word for words in pool.values() for word in words]


def test_no_name_word_is_in_both_pools_or_twice_in_one() -> None:
    train, held_out = words_of(TRAIN.names), words_of(HELD_OUT.names)
    assert not set(train) & set(held_out)
    assert len(held_out) == len(set(held_out))
    assert all(WORD.match(word) and re.match(NAME_PATTERN, word) for word in (*train, *held_out))


def test_held_out_name_words_occur_nowhere_in_training_texts(live: Harness, baseline: Harness) -> None:
    texts = [*base_words(), *TRAIN.gates, *TRAIN.openers]
    texts += [text for pool in TRAIN.descriptions.values() for text in pool]
    texts += [text for pair in TRAIN.distractors for text in pair]
    for harness in (live, baseline):
        texts += [skill.body + " " + skill.description for skill in harness.skills]
        texts += [tool.description for tool in harness.tools] + [prompt.text for prompt in harness.prompts]
        texts += [hook.message for hook in harness.hooks]
    seen = set(re.findall(r"[a-z]+", " ".join(texts).replace("_", " ")))
    assert not seen & set(words_of(HELD_OUT.names))


def test_phrases_and_descriptions_are_apart(live: Harness) -> None:
    assert not set(TRAIN.gates) & set(HELD_OUT.gates)
    assert not set(TRAIN.openers) & set(HELD_OUT.openers)
    originals = {part.id: part.description for part in (*live.skills, *live.tools)}
    for identifier, original in originals.items():
        train, held_out = TRAIN.descriptions[identifier], HELD_OUT.descriptions[identifier]
        assert len({original, *train, *held_out}) == 1 + len(train) + len(held_out)
    assert not {name for name, _ in TRAIN.distractors} & {name for name, _ in HELD_OUT.distractors}


def test_everything_that_can_be_renamed_has_words_in_both_pools(live: Harness) -> None:
    wanted = {part.id for part in (*live.skills, *live.tools)}
    wanted |= {name for tool in live.tools for name in tool.parameters["properties"]}
    for pool in (TRAIN.names, HELD_OUT.names):
        assert wanted <= set(pool)
        assert all(len(pool[identifier]) >= 4 for identifier in wanted)
        assert len(pool[""]) >= 30
    assert len(set(words_of(TRAIN.names))) > 150


def test_base_words_are_all_that_items_are_written_with() -> None:
    known = set(base_words())
    for item in LiveCommerce(Settings(mix="balanced", difficulty=3)).items(5, "train", 150):
        said = [word for turn in item.turns for text in (*turn.texts, *turn.gold.facts) for word in text.split()]
        for index, turn in enumerate(item.turns):
            room = room_before(item, index)
            said += plan_of(room, turn).sentence.split()
            said += [word for call in turn.gold.calls for word in carry_out(room, call.tool, call.arguments)[1].split()]
        missing = {word for word in said if word not in known and not word.isdigit()}
        assert not missing
