"""What the test session needs as a whole: whether a test that needs ms-swift is skipped or fails without it."""

from __future__ import annotations

import importlib.metadata
import os

import pytest


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a `swift` test where ms-swift is not installed; TUNER_REQUIRE_SWIFT=1 makes that a failure."""
    if item.get_closest_marker("swift") is None or _has_swift():
        return
    reason = "ms-swift is not installed here: pip install -c constraints.txt ms-swift"
    if os.environ.get("TUNER_REQUIRE_SWIFT") == "1":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def _has_swift() -> bool:
    # By distribution: an unrelated package, OpenStack's, is imported as `swift` too.
    try:
        importlib.metadata.version("ms-swift")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True
