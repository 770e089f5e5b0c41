"""Keys and values of token sequences that were computed before, as a radix tree: each shared beginning is stored once.

Always holds: what `match` returns was computed from exactly the tokens asked for; the tree never holds more than its
budget of tokens; eviction takes the least recently used ends first. A segment is a copy, so a row that started from
one does not care whether it is evicted meanwhile. Not here: rows being generated (bank).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch


class _Node:
    """An edge and what hangs below it: `kv` [2 * layers, G, len(tokens), D]."""

    __slots__ = ("children", "kv", "parent", "tokens", "used")

    def __init__(self, tokens: Sequence[int], kv: torch.Tensor, parent: _Node | None) -> None:
        self.tokens = tuple(tokens)
        self.kv = kv
        self.parent = parent
        self.children: dict[int, _Node] = {}
        self.used = 0


class PrefixCache:
    """A radix tree of at most `budget` tokens; 0 switches it off."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.tokens = 0
        self._clock = 0
        self._root = _Node((), torch.empty(0), None)

    def clear(self) -> None:
        """Forget everything (the weights changed)."""
        self._root = _Node((), torch.empty(0), None)
        self.tokens = 0

    def match(self, ids: Sequence[int], limit: int) -> tuple[int, list[torch.Tensor]]:
        """The longest known beginning of `ids`, at most `limit` tokens, as consecutive segments."""
        self._clock += 1
        node, found, segments = self._root, 0, []
        while found < limit:
            child = node.children.get(ids[found])
            if child is None:
                break
            common = _common(child.tokens, ids, found, limit)
            child.used = self._clock
            segments.append(child.kv[:, :, :common])
            found += common
            if common < len(child.tokens):
                break
            node = child
        return found, segments

    def insert(self, ids: Sequence[int], kv_from: int, kv: torch.Tensor) -> None:
        """Store `ids`; `kv` covers the tokens from `kv_from` on (what `match` gave before is already there).

        What was evicted in between cannot be attached any more and is left out.
        """
        if self.budget <= 0 or not ids:
            return
        self._clock += 1
        node, at = self._root, 0
        while at < len(ids):
            child = node.children.get(ids[at])
            if child is None:
                break
            common = _common(child.tokens, ids, at, len(ids))
            child.used = self._clock
            at += common
            if common < len(child.tokens):
                node = self._split(child, common)
                break
            node = child
        if at == len(ids) or at < kv_from:
            return
        leaf = _Node(ids[at:], kv[:, :, at - kv_from :].clone() if at > kv_from else kv, node)
        leaf.used = self._clock
        node.children[ids[at]] = leaf
        self.tokens += len(leaf.tokens)
        self._evict()

    def _split(self, child: _Node, common: int) -> _Node:
        """Cut an edge in two and return the upper half."""
        parent = child.parent
        assert parent is not None
        upper = _Node(child.tokens[:common], child.kv[:, :, :common].clone(), parent)
        upper.used = child.used
        parent.children[upper.tokens[0]] = upper
        child.tokens, child.kv, child.parent = child.tokens[common:], child.kv[:, :, common:].clone(), upper
        upper.children[child.tokens[0]] = child
        return upper

    def _evict(self) -> None:
        """Drop least recently used leaves until the budget holds."""
        while self.tokens > self.budget:
            oldest = min(self._leaves(), key=lambda node: node.used)
            parent = oldest.parent
            assert parent is not None
            del parent.children[oldest.tokens[0]]
            self.tokens -= len(oldest.tokens)

    def _leaves(self) -> list[_Node]:
        leaves: list[_Node] = []
        stack = list(self._root.children.values())
        while stack:
            node = stack.pop()
            if node.children:
                stack.extend(node.children.values())
            else:
                leaves.append(node)
        return leaves


def common_beginning(prompts: Sequence[list[int]]) -> int:
    """How many first tokens all prompts have in common, the last token of the shortest not counted."""
    first, last = min(prompts), max(prompts)  # what the extremes share, all share
    most = min(len(prompt) for prompt in prompts) - 1
    return next((index for index in range(most) if first[index] != last[index]), max(most, 0))


def _common(edge: Sequence[int], ids: Sequence[int], at: int, limit: int) -> int:
    """How many tokens of `edge` continue `ids` at `at`; at least one, the caller looked the first up."""
    most = min(len(edge), limit - at)
    if tuple(ids[at : at + most]) == tuple(edge[:most]):
        return most
    return next(index for index in range(most) if edge[index] != ids[at + index])
