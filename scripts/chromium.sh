#!/usr/bin/env bash
# Chromium for the tests of pages, from Debian's packages, where it is absent and may be installed. Without it those
# tests are skipped, and say so.
set -u
for name in chromium chromium-browser google-chrome; do
    command -v "$name" > /dev/null && exit 0
done
if [ "$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2> /dev/null; then as_root="sudo"; else as_root="nobody"; fi
if ! command -v apt-get > /dev/null || [ "$as_root" = nobody ]; then
    echo "no Chromium here, and none can be installed: the tests of pages will be skipped"
    exit 0
fi
echo "installing Chromium for the tests of pages"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq && $as_root apt-get install -qq -y --no-install-recommends chromium > /dev/null ||
    echo "Chromium could not be installed: the tests of pages will be skipped"
