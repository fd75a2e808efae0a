"""What tests of running engines share."""

import pytest

from tests.engine.counting import held, open_engine


@pytest.fixture
def opened():
    """Opens engines; at the end nothing may be held by any of them."""
    engines = []

    def open_one(**options):
        engines.append(open_engine(**options))
        return engines[-1]

    yield open_one
    for engine in engines:
        engine.close()
        assert held(engine) == (0, 0)
        assert engine.num_active == 0
        assert not engine._thread.is_alive()
