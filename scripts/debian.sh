#!/usr/bin/env bash
# Debian packages for tests, where they may be installed: scripts/debian.sh "what it is" "which tests" PACKAGE...
# Without them those tests are skipped, and say so: this never fails.
set -u
what=$1 tests=$2
shift 2
if [ "$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2> /dev/null; then as_root="sudo"; else as_root="nobody"; fi
if ! command -v apt-get > /dev/null || [ "$as_root" = nobody ]; then
    echo "no $what here, and none can be installed: $tests will be skipped"
    exit 0
fi
echo "installing $what for $tests"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get update -qq && $as_root apt-get install -qq -y --no-install-recommends "$@" > /dev/null ||
    echo "$what could not be installed: $tests will be skipped"
