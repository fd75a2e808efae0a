"""The toy session behind the command."""

import pytest

import dspark_core.loading
from tests import toy_session


@pytest.fixture
def opened(monkeypatch):
    """The sessions that the command opens, all of which it must close."""
    sessions = []

    def open_session(*arguments, **options):
        sessions.append(toy_session.open_session(*arguments, **options))
        return sessions[-1]

    monkeypatch.setattr(dspark_core.loading, "open_session", open_session)
    yield sessions
    assert all(session.closed for session in sessions), "the command left its session open"
