from __future__ import annotations

import pytest

from objectives import registry
from objectives.errors import UserError


def test_every_objective_is_known_by_its_name() -> None:
    """The default comes first, and a known name is returned as it is."""
    assert registry.names() == ("lora", "synthetic", "replay")
    assert [registry.require(name) for name in registry.names()] == list(registry.names())


def test_a_wrong_name_gets_the_closest_one() -> None:
    """The error lists what there is and the hint can be pasted."""
    with pytest.raises(UserError, match="objective 'reply' does not exist") as caught:
        registry.require("reply")
    assert caught.value.hint == "--objective replay"
    assert "lora, synthetic and replay" in caught.value.why
