#!/bin/sh
# Make .venv with the given Python (scripts/venv.sh PYTHON), unless a .venv with a supported Python exists.
set -eu
python=$1

version_of() { "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2> /dev/null; }

supported() {
    major=${1%%.*} rest=${1#*.}
    [ "$major" -gt 3 ] || { [ "$major" -eq 3 ] && [ "${rest%%.*}" -ge 11 ]; }
}

if existing=$(version_of .venv/bin/python) && supported "$existing"; then exit 0; fi
if ! version=$(version_of "$python"); then
    echo "Taciturn needs Python 3.11 or newer; '$python' cannot be run (set PYTHON=…)" >&2
    exit 1
fi
if ! supported "$version"; then
    echo "Taciturn needs Python 3.11 or newer; this is $version (set PYTHON=…)" >&2
    exit 1
fi
rm -rf .venv
if ! "$python" -m venv .venv; then
    rm -rf .venv
    exit 1
fi
