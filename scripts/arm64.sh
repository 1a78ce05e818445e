#!/usr/bin/env bash
# A compiler and an emulator for arm64, from Debian's packages, where they are absent and may be installed. Without them
# the test of the kernels on ARM (tests/kernels/test_arm64.py) is skipped, and says so.
set -u
command -v aarch64-linux-gnu-gcc > /dev/null && command -v qemu-aarch64-static > /dev/null && exit 0
if [ "$(id -u)" = 0 ]; then as_root=""; elif sudo -n true 2> /dev/null; then as_root="sudo"; else as_root="nobody"; fi
if ! command -v apt-get > /dev/null || [ "$as_root" = nobody ]; then
    echo "no arm64 compiler and emulator here, and none can be installed: the test of the kernels on ARM will be skipped"
    exit 0
fi
echo "installing a compiler and an emulator for arm64"
export DEBIAN_FRONTEND=noninteractive
packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static"
# shellcheck disable=SC2086
$as_root apt-get update -qq && $as_root apt-get install -qq -y --no-install-recommends $packages > /dev/null ||
    echo "they could not be installed: the test of the kernels on ARM will be skipped"
