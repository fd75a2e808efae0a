"""DSpark Playground: ``python app.py`` serves the page on http://127.0.0.1:7860 (``--help`` for the options)."""

import os
import signal
import sys

if __name__ == "__main__":  # Ctrl+C ends it while it imports, too, and no traceback says so
    signal.signal(signal.SIGINT, lambda *_: os._exit(128 + signal.SIGINT))

from ui.host import SessionHost
from ui.news import News
from ui.page import build_page
from ui.server import serve
from ui.settings import read_settings

settings = read_settings(sys.argv[1:] if __name__ == "__main__" else [])
host = SessionHost(settings.open_session, settings.model, settings.profile_s)
news = News()
demo = build_page(host, news)

if __name__ == "__main__":
    serve(demo, host, settings, news)
