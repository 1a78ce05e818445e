#!/usr/bin/env bash
# Chromium, for the tests of pages.
for name in chromium chromium-browser google-chrome "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"; do
    command -v "$name" > /dev/null && exit 0
done
exec "$(dirname "$0")/debian.sh" Chromium "the tests of pages" chromium
