#!/usr/bin/env bash
# A compiler and an emulator for arm64, for the test of the kernels on ARM (tests/kernels/test_arm64.py).
command -v aarch64-linux-gnu-gcc > /dev/null && command -v qemu-aarch64-static > /dev/null && exit 0
exec "$(dirname "$0")/debian.sh" "arm64 compiler and emulator" "the test of the kernels on ARM" \
    gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
