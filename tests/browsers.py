"""Where a Chromium is, for the tests of pages; scripts/chromium.sh looks in the same places."""

from __future__ import annotations

import shutil

MACOS = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", MACOS))), None)
